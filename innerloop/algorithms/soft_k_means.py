"""Soft k-means: a point's shares of the clusters are a softmax of −β times its squared distances.

    γ_ik ∝ exp(−β ‖x_i − μ_k‖²/2),   μ_k ← Σ_i γ_ik x_i / Σ_i γ_ik

With β = 1/σ² it is EM for clouds of equal weights and covariance σ²I. In the limit β → ∞ it is
Lloyd's algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.em import Means, Shares, half_squared_distances
from innerloop.algorithms.regression import to_scalar_tensor
from innerloop.problems.gaussian_mixture import ClusteringProblem


@dataclass(frozen=True, eq=False)
class SoftKMeans(Algorithm[ClusteringProblem, Means]):
    """Soft k-means with β = `stiffness`; the state is the means, the prediction is γ."""

    source: ClassVar[str] = "MacKay 2003, Information theory, Algorithm 20.7"
    problem_type: ClassVar = ClusteringProblem
    stiffness: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: ClusteringProblem) -> list[SoftKMeans]:
        spread = float(problem.x.var(dim=-2).mean()) if problem.n > 1 else 1.0
        return [cls(to_scalar_tensor(share / spread)) for share in (0.3, 1.0, 3.0, 10.0, 30.0)]

    def init(self, problem: ClusteringProblem) -> Means:
        return problem.start

    def step(self, problem: ClusteringProblem, state: Means, k: int) -> Means:
        logs = self._logits(problem, state).log_softmax(dim=-1)
        return logs.softmax(dim=-2).mT @ problem.x

    def predict(self, problem: ClusteringProblem, state: Means) -> Shares:
        return self._logits(problem, state).softmax(dim=-1)

    def _logits(self, problem: ClusteringProblem, means: Means) -> Shares:
        return -self.stiffness.to(means)[..., None, None] * half_squared_distances(problem, means)
