"""Checks that an interval decides, never the point in its middle.

    check_within("errors fall superlinearly, p > 1", Interval(1.07, 1.02, 1.12), least=1.0)
    check_around("the loss ends around 0.68", losses, 0.68, within=0.068, ours="a tenth")
    check_rate("the error falls as 1/n", n, errors, -1.0, within=0.1, ours="a tenth of a power")

All of an interval inside the range: holds. All of it outside: fails. Else undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.claims.evidence import Check


class Interval(NamedTuple):
    """An estimate with the ends of its 95 % interval, or of all that was observed."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g}, interval [{self.low:.4g}, {self.high:.4g}]"


def cover_values(values: Sequence[float]) -> Interval:
    """Cover what was observed, one value a training: mean, least and largest."""
    return Interval(sum(values) / len(values), min(values), max(values))


def estimate_mean(samples: Tensor) -> Interval:
    """Estimate a mean with its 95 % interval, by Student's t."""
    from scipy.stats import t as student

    if len(samples) < 2:
        raise ValueError("an interval needs two samples")
    mean, spread = float(samples.double().mean()), float(samples.double().std())
    wide = float(student.ppf(0.975, len(samples) - 1)) * spread / math.sqrt(len(samples))
    return Interval(mean, mean - wide, mean + wide)


def take_central(values: Sequence[float], value: float) -> Interval:
    """Take the central 95 % of values that were drawn again (a bootstrap) around an estimate."""
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.quantile(torch.tensor(values, dtype=torch.float64), ends).tolist()
    return Interval(value, low, high)


def check_within(
    statement: str,
    found: Interval,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    what: str = "",
    ours: str = "",
) -> Check:
    """Check least ≤ value ≤ most; `what` says what the number is and how often it was measured.

    The bounds are the source's, unless `ours` says what is ours about them.
    """
    inside = least <= found.low and found.high <= most
    outside = found.high < least or found.low > most
    passed = True if inside else (False if outside else None)
    bounds = [f"at least {least:.4g}"] if least > -math.inf else []
    bounds += [f"at most {most:.4g}"] if most < math.inf else []
    text = f"{what}: {found}" if what else str(found)
    asked = "we require" if ours else "stated"
    side = (
        f"{found.low:.4g} > {most:.4g}" if found.low > most else f"{found.high:.4g} < {least:.4g}"
    )
    return Check(
        statement=statement,
        passed=passed,
        summary=f"{text}, {asked} {' and '.join(bounds)}",
        counterexample=f"{text}: {side}" if passed is False else "",
        ours=ours,
    )


def check_around(
    statement: str,
    found: Interval | Sequence[float],
    stated: float,
    *,
    within: float,
    what: str = "",
    ours: str,
) -> Check:
    """Check that a number is `stated` to within `within`, from below and from above alike.

    `found` is an interval, or what each training gave. How near "around" is, is ours: say so.
    """
    interval = found if isinstance(found, Interval) else cover_values(found)
    ends = {"least": stated - within, "most": stated + within}
    return check_within(statement, interval, **ends, what=what, ours=ours)


def fit_exponent(x: Sequence[float], y: Sequence[float]) -> Interval:
    """The exponent of y ~ x^p by least squares on logarithms, with its 95 % interval.

    At least a decade of x: less cannot tell one power from another.
    """
    from scipy.stats import t as student

    if len(x) < 3 or max(x) < 10 * min(x):
        raise ValueError("a rate is fitted to three points or more over at least a decade")
    (slope, _), covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    wide = float(student.ppf(0.975, len(x) - 2) * np.sqrt(covariance[0, 0]))
    return Interval(float(slope), float(slope) - wide, float(slope) + wide)


def check_rate(
    statement: str,
    x: Sequence[float],
    y: Sequence[float],
    power: float,
    *,
    within: float,
    bound: bool = False,
    what: str = "",
    ours: str = "",
) -> Check:
    """Check y ~ x^power to within `within`; as a `bound`, that y grows no faster than that."""
    ends = {"most": power + within} if bound else {"least": power - within, "most": power + within}
    text = f"exponent in {what or 'x'} from {min(x):.3g} to {max(x):.3g}, {len(x)} points"
    return check_within(statement, fit_exponent(x, y), **ends, what=text, ours=ours)
