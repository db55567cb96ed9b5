"""Gradient descent on ridge regression, w ← w − η (∇R(w) + λ w), which is weight decay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.regression import (
    LinearModel,
    Weights,
    gradient,
    largest_curvature,
    to_scalar_tensor,
)
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class GradientDescentWithWeightDecay(LinearModel):
    """Gradient descent with η = `step_sizes[k]` at step k, and λ = `decay` at every step."""

    source: ClassVar[str] = "Hanson and Pratt 1988; the gradient of Hoerl and Kennard's ridge, 1970"
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    decay: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[GradientDescentWithWeightDecay]:
        top = largest_curvature(problem)
        return [
            cls(torch.tensor([size / top], dtype=torch.float64), to_scalar_tensor(share * top))
            for size in (0.05, 0.2, 0.5, 1.0)
            for share in (0.02, 0.3)
        ]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = select_entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        pull = gradient(problem, state) + self.decay.to(problem.x).unsqueeze(-1) * state
        return state - size * pull
