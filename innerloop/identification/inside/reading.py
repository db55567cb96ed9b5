"""Linear read-outs by ridge regression with an intercept, scored on prompts they never saw.

    v ≈ b + (h − h̄) W,   W = argmin Σ ‖v − b − (h − h̄) W‖² + λ ‖W‖²

λ is the one that predicts best on a held-out quarter of the prompts to fit on. The penalty is the
same in every orthonormal basis of the stream, and λ may be as small as rounding: registers may hold
numbers that are a millionth of their neighbours'.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "rows width"]
Labels = Float[Tensor, "rows size"]
SHRINKAGE = tuple(10.0**power for power in range(-13, 2))
"""√λ as a share of the features' largest singular value."""
MAX_ROWS = 8192
"""A read-out is fitted to at most this many tokens."""
MAX_FEATURE = 1e100
"""Squares of larger numbers overflow: a stream that holds them has diverged."""


@dataclass(frozen=True, eq=False)
class ReadOut:
    """A fitted read-out: b, h̄ and W."""

    intercept: Float[Tensor, " size"]
    centre: Float[Tensor, " width"]
    weight: Float[Tensor, "width size"]
    validation: float
    """R² on the held-out quarter."""

    def read(self, features: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch size"]:
        return self.intercept + (features - self.centre) @ self.weight

    def find_change(
        self, difference: Float[Tensor, "*batch size"], least: float = 1e-6
    ) -> Float[Tensor, "*batch width"]:
        """Return the change of the stream of least norm that changes what is read by this much.

        Directions of W smaller than `least` times its largest are left alone.
        """
        return difference @ torch.linalg.pinv(self.weight, rtol=least)

    def score(
        self,
        features: Float[Tensor, "batch places width"],
        values: Float[Tensor, "batch places size"],
    ) -> float:
        """R² on prompts that it was not fitted to."""
        return r_squared(self.read(features), values, self.intercept)


def r_squared(prediction: Tensor, values: Tensor, mean: Tensor) -> float:
    """1 − Σ‖v − v̂‖² / Σ‖v − v̄‖²; v̄ is the mean on the prompts to fit on. 0 where v is constant."""
    total = float((values - mean).square().sum())
    missed = float((values - prediction).square().sum())
    return 1 - missed / total if total > 0 else 0.0


class Fitter:
    """Fits read-outs of several labels from the same features, which are decomposed once."""

    def __init__(self, features: Float[Tensor, "batch places width"]) -> None:
        batch, places, _ = features.shape
        cut = 3 * batch // 4
        keep = max(1, min(cut, MAX_ROWS // places))
        self.fitted, self.held = slice(0, keep), slice(cut, cut + max(1, MAX_ROWS // places))
        rows = features[self.fitted].flatten(0, 1).double()
        self.finite = bool((rows.abs() < MAX_FEATURE).all())
        if not self.finite:
            return
        self.centre = rows.mean(dim=0)
        self.left, self.sizes, self.right = torch.linalg.svd(
            rows - self.centre, full_matrices=False
        )
        self.ahead = features[self.held].flatten(0, 1).double() - self.centre

    def fit(self, values: Float[Tensor, "batch places size"]) -> ReadOut | None:
        """Fit a read-out; None where the features are not finite."""
        if not self.finite or not float(self.sizes[0]) > 0:
            return None
        label = values[self.fitted].flatten(0, 1).double()
        later = values[self.held].flatten(0, 1).double()
        intercept = label.mean(dim=0)
        projected, seen = self.left.mT @ (label - intercept), self.ahead @ self.right.mT
        best = (float("-inf"), 0.0)
        for share in SHRINKAGE:
            shrunk = self._shrink(share).unsqueeze(-1) * projected
            found = r_squared(intercept + seen @ shrunk, later, intercept)
            best = max(best, (found, share))
        weight = self.right.mT @ (self._shrink(best[1]).unsqueeze(-1) * projected)
        return ReadOut(intercept, self.centre, weight, best[0])

    def _shrink(self, share: float) -> Float[Tensor, " rank"]:
        penalty = (share * self.sizes[0]).square()
        return self.sizes / (self.sizes.square() + penalty)
