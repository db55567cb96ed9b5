"""The ideal learner for sparse weights: the posterior mean by enumerating all supports. No steps.

Under the prior exactly s of d weights differ from 0, every support S with the same probability,
and these are N(0, τ²); labels have noise N(0, σ²). With q = σ²/τ² and G = X_SᵀX_S + q I

    ŵ = Σ_S p(S) G⁻¹X_Sᵀy,   log p(S) = ½ (X_Sᵀy)ᵀG⁻¹(X_Sᵀy)/σ² − ½ log det G + constant

That is exact, and takes C(d, s) small solves: it is a candidate where these are at most
`MAX_SUPPORTS`, that is up to d = 32 for s = 2 and d = 15 for s = 3.
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
"""Supports that are enumerated at most."""
SPARSITIES = (1, 2, 3)
"""Sparsities to try where the problem does not know its weights."""


@dataclass(frozen=True, eq=False)
class SparsePrior(ExactModel):
    """`penalty` is q = σ²/τ², `noise` is σ², and `sparsity` is s."""

    source: ClassVar[str] = "Bayes' rule; the spike and slab of Mitchell and Beauchamp 1988"
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    noise: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    sparsity: int = 1

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[SparsePrior]:
        """The sparsity of the problem's own weights where it knows them, and three noises."""
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
                f"{self.sparsity} of {problem.d} weights have {count} supports: "
                f"at most {MAX_SUPPORTS} are enumerated, and at least one"
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
    """List the sparsities to try: that of the true weights where it is always the same below d."""
    if problem.weights is not None:
        counts = (problem.weights != 0).sum(dim=-1)
        same = int(counts.max())
        return [same] if 0 < same == int(counts.min()) < problem.d else [1]
    return [s for s in SPARSITIES if s < problem.d or s == 1]
