"""The mean label of the k examples that are nearest to the query (one state, no steps)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.regression import Predictions
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class NearestNeighbours(Algorithm[RegressionProblem, Predictions]):
    """The mean label of the k nearest examples, batched; a k above n uses all examples.

    It equals scikit-learn's KNeighborsRegressor.
    """

    source: ClassVar[str] = "sklearn.neighbors.KNeighborsRegressor solves the same problem"
    problem_type: ClassVar = RegressionProblem
    has_steps: ClassVar[bool] = False
    neighbours: int

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise InputError(f"neighbours must be at least 1, got {self.neighbours}")

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[NearestNeighbours]:
        return [cls(k) for k in (1, 2, 3, 5, 8, 13) if k <= problem.n]

    def init(self, problem: RegressionProblem) -> Predictions:
        distances = torch.cdist(problem.x_query, problem.x)
        nearest = distances.topk(min(self.neighbours, problem.n), dim=-1, largest=False).indices
        labels = problem.y.unsqueeze(-2).expand(distances.shape)
        return labels.gather(-1, nearest).mean(dim=-1)

    def step(self, problem: RegressionProblem, state: Predictions, k: int) -> Predictions:
        return state

    def predict(self, problem: RegressionProblem, state: Predictions) -> Predictions:
        return state
