"""The ideal learner for sparse weights: the posterior mean over all supports (one state, no steps).

Under the prior exactly s of d weights differ from 0, and all supports S are equally likely. The
weights on the support are N(0, τ²); labels have noise N(0, σ²). With q = σ²/τ² and
G = X_SᵀX_S + q I

    ŵ = Σ_S p(S) G⁻¹X_Sᵀy,   log p(S) = ½ (X_Sᵀy)ᵀG⁻¹(X_Sᵀy)/σ² − ½ log det G + constant

This is exact and takes C(d, s) small solves. It is used for at most `MAX_SUPPORTS` supports, that
is, up to d = 32 for s = 2 and d = 15 for s = 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.regression import ExactModel, Weights, check_penalty, to_scalar_tensor
from innerloop.errors import OutOfRangeError
from innerloop.problems.linear_regression import RegressionProblem

MAX_SUPPORTS = 500
"""The largest number of supports that is enumerated."""
SPARSITIES = (1, 2, 3)
"""Sparsities to try if the true weights of the problem are unknown."""


@dataclass(frozen=True, eq=False)
class SparsePrior(ExactModel):
    """The posterior mean of sparse weights, with q = `penalty`, σ² = `noise` and s = `sparsity`."""

    source: ClassVar[str] = "Bayes' rule; the spike and slab of Mitchell and Beauchamp 1988"
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    noise: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    sparsity: int = 1

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[SparsePrior]:
        """Return starts for the sparsities of `_list_sparsities`, with three noises each."""
        row = float(problem.x.square().sum(dim=-1).mean()) / problem.d
        label = float(problem.y.square().mean())
        return [
            cls(to_scalar_tensor(share * row), to_scalar_tensor(share * label), sparsity)
            for sparsity in _list_sparsities(problem)
            if math.comb(problem.d, sparsity) <= MAX_SUPPORTS
            for share in (1e-3, 1e-2, 1e-1)
        ]

    def __post_init__(self) -> None:
        check_penalty(self.penalty)
        check_penalty(self.noise)

    def init(self, problem: RegressionProblem) -> Weights:
        count = math.comb(problem.d, self.sparsity)
        if not 0 < count <= MAX_SUPPORTS:
            raise OutOfRangeError(
                f"expected 1 to {MAX_SUPPORTS} supports, got {count} for {self.sparsity} of "
                f"{problem.d} weights: choose another sparsity or fewer features"
            )
        places = torch.tensor(list(combinations(range(problem.d), self.sparsity)))
        places = places.to(problem.x.device)
        gram = problem.x.mT @ problem.x
        moment = (problem.x.mT @ problem.y.unsqueeze(-1)).squeeze(-1)
        own = gram[..., places.unsqueeze(-1), places.unsqueeze(-2)]
        penalty = self.penalty.to(problem.x)[..., None, None, None]
        factor = torch.linalg.cholesky(own + penalty * torch.eye(self.sparsity).to(own))
        inside = moment[..., places].unsqueeze(-1)
        solved = torch.cholesky_solve(inside, factor).squeeze(-1)
        fit = (inside.squeeze(-1) * solved).sum(dim=-1)
        volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        shares = (fit / (2 * self.noise.to(fit).unsqueeze(-1)) - volume).softmax(dim=-1)
        spread = torch.nn.functional.one_hot(places, problem.d).to(solved)
        return torch.einsum("...k,...ks,ksd->...d", shares, solved, spread)


def _list_sparsities(problem: RegressionProblem) -> list[int]:
    """Return the sparsities to try.

    With known weights it is their sparsity, if it is the same in all instances and below d, else 1.
    """
    if problem.weights is not None:
        counts = (problem.weights != 0).sum(dim=-1)
        same = int(counts.max())
        return [same] if 0 < same == int(counts.min()) < problem.d else [1]
    return [s for s in SPARSITIES if s < problem.d or s == 1]
