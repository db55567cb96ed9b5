"""The ideal learner for weights w ~ N(0, C) and noise: the posterior mean (one state, no steps).

    ŵ = C Xᵀ (X C Xᵀ + σ²I)⁻¹ y,   C = L Lᵀ

If the weights have that prior, no predictor has a smaller mean squared error. C = I is ridge
regression with λ = σ². Without noise and with fewer examples than features, ŵ is the solution with
the least wᵀC⁻¹w. There is no such closed form if the prior differs between prompts and the prompt
does not determine it (weights N(0, Σ⁻¹) with a randomly rotated Σ).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.regression import ExactModel, Weights, check_penalty, to_scalar_tensor
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class GaussianPrior(ExactModel):
    """The posterior mean for Gaussian weights; `root` is L, and `penalty` is σ² > 0.

    Only the ratio of C and σ² matters.
    """

    source: ClassVar[str] = "Bayes' rule; Bishop 2006, Pattern recognition, (3.53) with C for S₀"
    root: Float[Tensor, "*batch d d"] = field(metadata=hyperparameter())
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[GaussianPrior]:
        """Return starts with C = I and, if the true weights are known, with their covariance.

        There are four noises for each C.
        """
        identity = torch.eye(problem.d, dtype=torch.float64)
        roots = [identity]
        if problem.weights is not None and problem.weights[..., 0].numel() > 4 * problem.d:
            drawn = problem.weights.reshape(-1, problem.d).double()
            moment = drawn.mT @ drawn / len(drawn)
            power = float(moment.diagonal().mean())
            roots.insert(0, torch.linalg.cholesky(moment / power + 1e-6 * identity))
        row = float(problem.x.square().sum(dim=-1).mean())
        return [
            cls(root, to_scalar_tensor(share * row))
            for root in roots
            for share in (1e-4, 1e-2, 1e-1, 1.0)
        ]

    def __post_init__(self) -> None:
        check_penalty(self.penalty)

    def init(self, problem: RegressionProblem) -> Weights:
        root, penalty = self.root.to(problem.x), self.penalty.to(problem.x)[..., None, None]
        rows, few = problem.x @ root, problem.n < problem.d
        gram = rows @ rows.mT if few else rows.mT @ rows
        system = gram + penalty * torch.eye(gram.shape[-1]).to(gram)
        labels = problem.y.unsqueeze(-1)
        factor, failed = torch.linalg.cholesky_ex(system)
        if bool(failed.any()):
            raise InputError(
                "expected a noise that makes the posterior's linear system positive definite, got "
                f"{float(self.penalty.detach().min())}: enlarge it"
            )
        if few:
            return (root @ (rows.mT @ torch.cholesky_solve(labels, factor))).squeeze(-1)
        return (root @ torch.cholesky_solve(rows.mT @ labels, factor)).squeeze(-1)
