"""Checks whether measured errors follow a printed power law, or stay below it."""

from __future__ import annotations

from collections.abc import Sequence

from innerloop.claims.evidence import Check
from innerloop.claims.intervals import fit_exponent


def check_power_law(
    statement: str,
    x: Sequence[float],
    y: Sequence[float],
    power: float,
    *,
    within: float,
    what: str,
    bound: bool = False,
) -> Check:
    """Check that y ~ x^power, to within `within`; as a bound, that y grows no faster than that.

    Undecided where the exponent is off but its interval reaches the allowed range.
    """
    exponent, low, high = fit_exponent(x, y)
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
