"""The exact least-squares weights, of least norm where many fit (LAPACK's gelsd). No steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.gradient_descent import Weights, linear_prediction
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class LeastSquares(Algorithm[RegressionProblem, Weights]):
    """The first state is the solution; steps leave it as it is."""

    source: ClassVar[str] = "numpy.linalg.lstsq solves the same problem"

    def init(self, problem: RegressionProblem) -> Weights:
        # gelsd, the driver that takes rank-deficient rows, exists on the CPU only.
        x, y = problem.x.cpu(), problem.y.cpu().unsqueeze(-1)
        return torch.linalg.lstsq(x, y, driver="gelsd").solution.squeeze(-1).to(problem.x.device)

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return state

    def predict(
        self, problem: RegressionProblem, state: Weights
    ) -> Float[Tensor, "*batch queries"]:
        return linear_prediction(problem, state)
