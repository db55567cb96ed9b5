"""Gradient descent on least squares, w ← w − η ∇R(w), R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, entry
from innerloop.problems.linear_regression import RegressionProblem

Weights = Float[Tensor, "*batch d"]


def gradient(problem: RegressionProblem, weights: Weights) -> Weights:
    """∇R(w) = (1/n) Σᵢ (⟨w, xᵢ⟩ − yᵢ) xᵢ."""
    residual = (problem.x @ weights.unsqueeze(-1)).squeeze(-1) - problem.y
    return (problem.x.mT @ residual.unsqueeze(-1)).squeeze(-1) / problem.n


def linear_prediction(
    problem: RegressionProblem, weights: Weights
) -> Float[Tensor, "*batch queries"]:
    """⟨w, x⟩ for every query."""
    return (problem.x_query @ weights.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, eq=False)
class GradientDescent(Algorithm[RegressionProblem, Weights]):
    """Step k uses `step_sizes[k]`; fewer sizes than steps are used again from the first."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (11) with A = −γI"
    step_sizes: Float[Tensor, " steps"]

    def init(self, problem: RegressionProblem) -> Weights:
        return problem.x.new_zeros(*problem.x.shape[:-2], problem.d)

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return state - entry(self.step_sizes, k, problem.x) * gradient(problem, state)

    def predict(
        self, problem: RegressionProblem, state: Weights
    ) -> Float[Tensor, "*batch queries"]:
        return linear_prediction(problem, state)
