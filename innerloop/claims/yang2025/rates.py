"""Whether measured errors follow a printed power, or stay below it."""

from __future__ import annotations

from collections.abc import Sequence

from innerloop.claims.evidence import Check
from innerloop.claims.trials import fitted_exponent


def follows(
    statement: str,
    x: Sequence[float],
    y: Sequence[float],
    power: float,
    *,
    within: float,
    what: str,
    bound: bool = False,
) -> Check:
    """Whether y ~ x^power, to within `within`; as a bound, whether y grows no faster than that.

    Where the exponent is off but its interval reaches the allowed range, it cannot be told.
    """
    exponent, low, high = fitted_exponent(x, y)
    off = exponent - power if bound else abs(exponent - power)
    near = low - power if bound else max(low - power, power - high)
    passed = None if off > within >= near else off <= within
    told = f"exponent {exponent:.3f}, 95 % interval [{low:.3f}, {high:.3f}], stated "
    told += f"{power:.3g}{' at most' if bound else ''} (allowed {within:g} more), {len(x)} points, "
    told += f"{what} from {min(x):.3g} to {max(x):.3g}"
    return Check(
        statement=statement,
        passed=passed,
        summary=told,
        counterexample=told if passed is False else "",
    )
