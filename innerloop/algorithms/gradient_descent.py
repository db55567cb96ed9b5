"""Gradient descent on least squares, w ← w − η ∇R(w), R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import entry
from innerloop.algorithms.regression import LinearModel, Weights, gradient, steepest
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class GradientDescent(LinearModel):
    """Step k uses `step_sizes[k]`; fewer sizes than steps are used again from the first."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (11) with A = −γI"
    special_case_of: ClassVar[tuple[str, ...]] = ("preconditioned-gradient-descent",)
    step_sizes: Float[Tensor, " steps *batch"]

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[GradientDescent]:
        return [cls(torch.tensor([size], dtype=torch.float64)) for size in step_sizes(problem)]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        return state - size * gradient(problem, state)


def step_sizes(problem: RegressionProblem) -> list[float]:
    """Step sizes worth a try: powers of two from a hundredth of the largest safe one to itself."""
    return [2.0**power / steepest(problem) for power in range(-6, 2)]
