"""Gradient descent on least squares, w ← w − η ∇R(w), R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.regression import LinearModel, Weights, gradient, largest_curvature
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class GradientDescent(LinearModel):
    """Gradient descent with `step_sizes[k]` at step k; fewer sizes than steps are repeated."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (11) with A = −γI"
    special_case_of: ClassVar[tuple[str, ...]] = (
        "preconditioned-gradient-descent",
        "weighted-gradient-descent",
        "gradient-descent-with-weight-decay",
        "heavy-ball",
        "nesterov",
    )
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[GradientDescent]:
        return [
            cls(torch.tensor([size], dtype=torch.float64)) for size in candidate_step_sizes(problem)
        ]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = select_entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        return state - size * gradient(problem, state)


def candidate_step_sizes(problem: RegressionProblem) -> list[float]:
    """Return step sizes from which a fit starts: 2^−6, …, 2 over λmax(XᵀX/n), the stable limit."""
    return [2.0**power / largest_curvature(problem) for power in range(-6, 2)]
