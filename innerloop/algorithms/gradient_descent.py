"""Gradient descent on least squares, w ← w − η ∇R(w), R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import entry
from innerloop.algorithms.regression import LinearModel, Weights, gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class GradientDescent(LinearModel):
    """Step k uses `step_sizes[k]`; fewer sizes than steps are used again from the first."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (11) with A = −γI"
    step_sizes: Float[Tensor, " steps"]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return state - entry(self.step_sizes, k, problem.x) * gradient(problem, state)
