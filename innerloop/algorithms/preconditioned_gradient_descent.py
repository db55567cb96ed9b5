"""Preconditioned gradient descent on least squares, w ← w − A ∇R(w), with a matrix A per step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.gradient_descent import candidate_step_sizes
from innerloop.algorithms.regression import LinearModel, Weights, gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class PreconditionedGradientDescent(LinearModel):
    """Gradient descent with `preconditioners[k]`, symmetric or not, at step k.

    If there are fewer matrices than steps, they are repeated.
    """

    source: ClassVar[str] = "Ahn et al. 2023, eq. (11)"
    special_case_of: ClassVar[tuple[str, ...]] = ("gd-plus-plus", "lista-vm")
    preconditioners: Float[Tensor, "steps *batch d d"] = field(
        metadata=hyperparameter(per_step=True)
    )

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[PreconditionedGradientDescent]:
        identity = torch.eye(problem.d, dtype=torch.float64).unsqueeze(0)
        return [cls(size * identity) for size in candidate_step_sizes(problem)]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        matrix = select_entry(self.preconditioners, k, problem.x)
        return state - (matrix @ gradient(problem, state).unsqueeze(-1)).squeeze(-1)
