"""Linear read-outs by ridge regression with an intercept, scored on prompts they never saw.

    v ≈ b + (h − h̄) W,   W = argmin Σ ‖v − b − (h − h̄) W‖² + λ ‖W‖²

λ is the largest that predicts about best on a held-out quarter of the prompts to fit on. The
penalty is the same in every orthonormal basis of the stream, and λ may be as small as rounding:
registers may hold numbers that are a millionth of their neighbours'.
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
SLACK, RESOLUTION = 1.01, 1e-12
"""Chosen is the largest penalty whose error is at most this factor above the least one, and this
share of the labels' power: smaller ones only add weights where the features never vary."""
MAX_ROWS = 4096
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

    def invert(self, least: float = 1e-6) -> Float[Tensor, "size width"]:
        """Return the map from changes of the read values to changes of the stream with the
        least norm.

        Directions of W smaller than `least` times its largest are not changed.
        """
        return torch.linalg.pinv(self.weight, rtol=least)

    def score(
        self,
        features: Float[Tensor, "batch places width"],
        values: Float[Tensor, "batch places size"],
    ) -> float:
        """Return R² on prompts that it was not fitted to."""
        return r_squared(self.read(features), values, self.intercept)


def r_squared(prediction: Tensor, values: Tensor, mean: Tensor) -> float:
    """Return 1 − Σ‖v − v̂‖² / Σ‖v − v̄‖², or 0 if v is constant.

    v̄ is the mean on the prompts to fit on.
    """
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
        self.seen = (features[self.held].flatten(0, 1).double() - self.centre) @ self.right.mT
        self.gram = self.seen.mT @ self.seen
        shares = torch.tensor(SHRINKAGE).to(self.sizes).unsqueeze(-1) * self.sizes[0]
        self.filters = self.sizes / (self.sizes.square() + shares.square()).clamp_min(1e-300)

    def fit(self, values: Float[Tensor, "batch places size"]) -> ReadOut | None:
        """Fit a read-out; return None if the features are not finite."""
        if not self.finite or not float(self.sizes[0]) > 0:
            return None
        label = values[self.fitted].flatten(0, 1).double()
        intercept = label.mean(dim=0)
        later = values[self.held].flatten(0, 1).double() - intercept
        projected = self.left.mT @ (label - intercept)
        # ‖v − seen · (filter ∘ projected)‖² for all filters at once, as a quadratic form in them.
        linear = ((self.seen.mT @ later) * projected).sum(dim=-1)
        square = self.gram * (projected @ projected.mT)
        total = later.square().sum()
        missed = total - 2 * self.filters @ linear
        missed += ((self.filters @ square) * self.filters).sum(dim=-1)
        enough = missed <= SLACK * missed.min() + RESOLUTION * total
        best = int(enough.nonzero().max())
        weight = self.right.mT @ (self.filters[best].unsqueeze(-1) * projected)
        found = r_squared(self.seen @ (self.right @ weight), later, torch.zeros_like(intercept))
        return ReadOut(intercept, self.centre, weight, found)
