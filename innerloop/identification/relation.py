"""Laws of Fu et al. 2023: growth of steps with layers, and order of convergence.

linear        k = a + b ℓ          the same number of steps in every layer
exponential   k = e^(a + b ℓ)      a growing number of steps in every layer
order p       log e_{ℓ+1} = c + p log e_ℓ      1: the error shrinks by a factor; 2: it is squared
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

MIN_RELATIVE_ERROR = 1e-13
"""Errors below this share of the first error are rounding."""
MOST_GROWTH = 20.0
"""The largest |b| of an exponential, per step of x: steep enough to be a jump to the last point."""


class Line(NamedTuple):
    """y = intercept + slope · x by least squares, and the share of y's variance it explains."""

    slope: float
    intercept: float
    r2: float

    @classmethod
    def fit(cls, x: Sequence[float], y: Sequence[float]) -> Line | None:
        """Fit a line; return None for fewer than three points, or if x does not vary."""
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
    """Fit linear and exponential growth of steps with layers; say which is better.

    Both are fitted by least squares on the steps themselves, zeros included, and judged by the
    share of the steps' variance that they explain. None where no step is above 0.
    """
    x, y = [float(layer) for layer in layers], [float(k) for k in steps]
    straight = Line.fit(x, y)
    if straight is None or max(y) <= 0:
        return None
    bent = fit_exponential(x, y)
    better = "linear" if straight.r2 >= bent.r2 else "exponential"
    return {"better": better, "linear": straight._asdict(), "exponential": bent._asdict()}


def fit_exponential(x: Sequence[float], y: Sequence[float]) -> Line:
    """Fit y = e^(intercept + slope · x) by least squares on y ≥ 0, which is not 0 everywhere.

    For a given slope b, let z = e^(bx). The best factor is ⟨y, z⟩/⟨z, z⟩, and the residual is
    smallest if the cosine of y and z is largest. The slope is searched on a grid, then refined
    around the best point by ternary search.
    """
    a, b = (torch.tensor(values, dtype=torch.float64) for values in (x, y))
    far = MOST_GROWTH / float(a.unique().diff().min())

    def curves(slopes: Tensor) -> Tensor:
        powers = slopes.unsqueeze(-1) * a
        return (powers - powers.amax(dim=-1, keepdim=True)).exp()

    def cosines(slopes: Tensor) -> Tensor:
        found = curves(slopes)
        return (found * b).sum(dim=-1) / found.norm(dim=-1)

    grid = torch.linspace(-far, far, 4001, dtype=torch.float64)
    middle = float(grid[cosines(grid).argmax()])
    low, high = max(middle - 2 * far / 4000, -far), min(middle + 2 * far / 4000, far)
    for _ in range(60):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        left, right = cosines(torch.tensor([one, other], dtype=torch.float64)).tolist()
        low, high = (low, other) if left >= right else (one, high)
    slope = (low + high) / 2
    curve = curves(torch.tensor([slope], dtype=torch.float64))[0]
    factor = float((curve * b).sum() / curve.square().sum())
    total = float((b - b.mean()).square().sum())
    left = float((b - factor * curve).square().sum())
    intercept = math.log(factor) - float((slope * a).max())
    return Line(slope, intercept, 1.0 if total == 0 else 1 - left / total)


def order_of_convergence(errors: Sequence[float]) -> dict[str, float] | None:
    """Fit the order p at which errors fall from layer to layer, with the fit's quality."""
    falling = []
    for before, after in pairwise(errors):
        if not MIN_RELATIVE_ERROR * errors[0] < after < before:
            break
        falling.append((math.log(before), math.log(after)))
    line = Line.fit([b for b, _ in falling], [a for _, a in falling])
    return None if line is None else {"order": line.slope, "r2": line.r2}
