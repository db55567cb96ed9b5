"""EM for a mixture of Gaussians whose covariance σ²I and weights π are known.

γ_ik ∝ π_k exp(−‖x_i − μ_k‖²/2σ²),   μ_k ← Σ_i γ_ik x_i / Σ_i γ_ik

Every γ is positive, so no cluster is empty. γ is computed as a logarithm, so that the formula holds
for a mean that is arbitrarily far from all points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.problems.gaussian_mixture import ClusteringProblem

Means = Float[Tensor, "*batch clusters d"]
Shares = Float[Tensor, "*batch n clusters"]


@dataclass(frozen=True, eq=False)
class EM(Algorithm[ClusteringProblem, Means]):
    """EM, with the means as state; it predicts the share γ of each cluster in each point."""

    source: ClassVar[str] = "Yang 2025 (Transformers versus the EM algorithm)"
    problem_type: ClassVar = ClusteringProblem
    noise: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    log_weights: Float[Tensor, "*batch clusters"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: ClusteringProblem) -> list[EM]:
        centred = problem.x - problem.x.mean(dim=-2, keepdim=True)
        spread = centred.square().mean().sqrt().double().cpu().clamp_min(1e-6)
        equal = torch.zeros(problem.clusters, dtype=torch.float64)
        return [cls(share * spread, equal) for share in (0.1, 0.2, 0.4, 0.7, 1.0)]

    def init(self, problem: ClusteringProblem) -> Means:
        return problem.start

    def step(self, problem: ClusteringProblem, state: Means, k: int) -> Means:
        weights = self._log_shares(problem, state).softmax(dim=-2)
        return weights.mT @ problem.x

    def predict(self, problem: ClusteringProblem, state: Means) -> Shares:
        return self._log_shares(problem, state).exp()

    def _log_shares(self, problem: ClusteringProblem, means: Means) -> Shares:
        logits = -half_squared_distances(problem, means)
        logits = logits / self.noise.to(logits)[..., None, None] ** 2
        return (logits + self.log_weights.to(logits).unsqueeze(-2)).log_softmax(dim=-1)


def half_squared_distances(problem: ClusteringProblem, means: Means) -> Shares:
    """Return ½‖x_i − μ_k‖² for each point and each mean."""
    return (problem.x.unsqueeze(-2) - means.unsqueeze(-3)).square().sum(dim=-1) / 2
