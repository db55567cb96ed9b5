"""Laws of Fu et al. 2023: growth of steps with layers, and order of convergence.

linear        k = a + b ℓ          the same number of steps in every layer
exponential   log k = a + b ℓ      a growing number of steps in every layer
order p       log e_{ℓ+1} = c + p log e_ℓ      1: the error shrinks by a factor; 2: it is squared
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

MIN_RELATIVE_ERROR = 1e-13
"""Errors below this share of the first error are rounding."""


class Line(NamedTuple):
    """y = intercept + slope · x by least squares, and the share of y's variance it explains."""

    slope: float
    intercept: float
    r2: float

    @classmethod
    def fit(cls, x: Sequence[float], y: Sequence[float]) -> Line | None:
        """Fit a line; None for fewer than three points, or where x does not vary."""
        a, b = (torch.tensor(values, dtype=torch.float64) for values in (x, y))
        if len(a) < 3 or float(a.max() - a.min()) == 0:
            return None
        da, db = a - a.mean(), b - b.mean()
        slope = float((da * db).sum() / da.square().sum())
        total = float(db.square().sum())
        left = float((db - slope * da).square().sum())
        r2 = 1.0 if total == 0 else 1 - left / total
        return cls(slope, float(b.mean() - slope * a.mean()), r2)


def fit_step_growth(layers: Sequence[int], steps: Sequence[int]) -> dict[str, Any] | None:
    """Fit linear and exponential growth of steps with layers; tell which is better.

    Both are judged by the share of the steps' own variance that they explain.
    """
    kept = [(layer, k) for layer, k in zip(layers, steps, strict=True) if k > 0]
    x, y = [float(layer) for layer, _ in kept], [float(k) for _, k in kept]
    straight, bent = Line.fit(x, y), Line.fit(x, [math.log(k) for k in y])
    if straight is None or bent is None:
        return None
    mean = sum(y) / len(y)
    total = sum((k - mean) ** 2 for k in y)
    missed = sum(
        (k - math.exp(bent.intercept + bent.slope * layer)) ** 2
        for layer, k in zip(x, y, strict=True)
    )
    quality = 1.0 if total == 0 else 1 - missed / total
    fits = {"linear": straight, "exponential": bent._replace(r2=quality)}
    better = "linear" if straight.r2 >= quality else "exponential"
    return {"better": better, **{name: fit._asdict() for name, fit in fits.items()}}


def order_of_convergence(errors: Sequence[float]) -> dict[str, float] | None:
    """Fit the order p at which errors fall from layer to layer, with the fit's quality."""
    falling = []
    for before, after in pairwise(errors):
        if not MIN_RELATIVE_ERROR * errors[0] < after < before:
            break
        falling.append((math.log(before), math.log(after)))
    line = Line.fit([b for b, _ in falling], [a for _, a in falling])
    return None if line is None else {"order": line.slope, "r2": line.r2}
