"""Preconditioned gradient descent on least squares, w ← w − A ∇R(w), a matrix A for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import entry
from innerloop.algorithms.regression import LinearModel, Weights, gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class PreconditionedGradientDescent(LinearModel):
    """Step k uses `preconditioners[k]`, symmetric or not; fewer than steps are used again."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (11)"
    preconditioners: Float[Tensor, "steps d d"]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        matrix = entry(self.preconditioners, k, problem.x)
        return state - (matrix @ gradient(problem, state).unsqueeze(-1)).squeeze(-1)
