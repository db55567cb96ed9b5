"""Compute the principal components of every problem, with the conventions of scikit-learn's PCA.

Rows are centred. Components are eigenvectors of the covariance, in the order of decreasing
variance; the entry of largest absolute value is positive. Variances divide by n − 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.limits import check_count
from innerloop.solving.base import Answers, Solver
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import centre_carefully, check_underflow, find_doubtful

LEAST_SHARE = 1e-6
"""Variances below this share of the largest need the singular vectors of the rows themselves.

Eigenvectors that are computed from XᵀX or XXᵀ have errors of the rounding error over this share.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class PCA(Solver):
    """Solver of principal components; `components` is their number, by default the largest."""

    measure: ClassVar[str] = "largest ‖Cv − λv‖ over the variance of all features"
    labelled: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    components: int | None = None

    def prepare(self, sizes: Sequence[int], d: int) -> PCA:
        most = min(*sizes, d) if len(sizes) > 1 else min(sizes[0], d)
        if min(sizes) < 2:
            raise InputError("PCA needs at least 2 rows in every problem, got one with 1")
        if self.components is None:
            return replace(self, components=most)
        return replace(self, components=check_count("components", self.components, 1, most))

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        assert self.components is not None
        check_underflow(samples)
        mean, totals = samples.average(samples.x), samples.totals
        x = (samples.x - mean.unsqueeze(1)) * (samples.weights > 0).unsqueeze(-1)
        squares = x.square().sum(dim=1)
        doubtful = find_doubtful(squares / totals.unsqueeze(-1), mean)
        if len(doubtful):
            part = samples.select(doubtful)
            careful, mean[doubtful] = centre_carefully(part)
            x[doubtful] = careful * (part.weights > 0).unsqueeze(-1)
            squares[doubtful] = x[doubtful].square().sum(dim=1)
        x = x / (totals - 1).clamp_min(1).sqrt()[:, None, None]
        values, vectors = _decompose(x, self.components)
        signs = vectors.gather(-1, vectors.abs().argmax(dim=-1, keepdim=True)).sign()
        vectors = vectors * torch.where(signs == 0, 1.0, signs)
        spread = squares.sum(dim=-1) / (totals - 1).clamp_min(1)
        products = (vectors @ x.mT) @ x
        residuals = (products - values.unsqueeze(-1) * vectors).norm(dim=-1).amax(dim=-1)
        measures = residuals / torch.where(spread > 0, spread, 1.0)
        shares = values / torch.where(spread > 0, spread, 1.0).unsqueeze(-1)
        converged = measures <= tolerance
        return {
            "components": vectors,
            "explained_variance": values,
            "explained_variance_ratio": shares,
            "mean": mean,
            "optimality": measures,
            "converged": converged,
            "steps": torch.ones_like(converged, dtype=torch.int64),
        }


def _decompose(x: Float[Tensor, "problems n d"], count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest eigenvalues of XᵀX and their vectors.

    They are computed from XᵀX or XXᵀ, whichever is smaller.
    """
    wide = x.shape[1] < x.shape[2]
    values, vectors = torch.linalg.eigh(x @ x.mT if wide else x.mT @ x)
    values = values[:, -count:].flip(-1).clamp_min(0.0)
    vectors = vectors[..., -count:].flip(-1).mT
    fine = values[:, -1] > LEAST_SHARE * values[:, 0]
    if wide:
        vectors = vectors @ x
        lengths = vectors.norm(dim=-1, keepdim=True)
        vectors = vectors / torch.where(lengths > 0, lengths, 1.0)
    if not bool(fine.all()):
        _, singular, rows = torch.linalg.svd(x[~fine], full_matrices=False)
        values[~fine], vectors[~fine] = singular[:, :count].square(), rows[:, :count]
    return values, vectors
