"""Base class of gradient descent with momentum on least squares."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter, select_entry
from innerloop.algorithms.regression import (
    Predictions,
    Weights,
    largest_curvature,
    linear_prediction,
)
from innerloop.problems.linear_regression import RegressionProblem


class Iterates(NamedTuple):
    """The current weights, and those of one step before."""

    weights: Weights
    previous: Weights


@dataclass(frozen=True, eq=False)
class Momentum(Algorithm[RegressionProblem, Iterates], ABC):
    """Gradient descent with η = `step_sizes[k]` and momentum β = `momenta[k]` at step k.

    It starts from w = 0 without a previous move.
    """

    problem_type: ClassVar = RegressionProblem
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    momenta: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Any]:
        """Return starts with step sizes 2^−4, …, 1 over λmax(XᵀX/n) and little or much momentum."""
        top = largest_curvature(problem)
        sizes = [2.0**power / top for power in range(-4, 1)]
        pairs = torch.tensor([[s, m] for s in sizes for m in (0.2, 0.7)], dtype=torch.float64)
        return [cls(size, momentum) for size, momentum in pairs.unsqueeze(-1).unbind(dim=0)]

    def init(self, problem: RegressionProblem) -> Iterates:
        zeros = problem.x.new_zeros(*problem.x.shape[:-2], problem.d)
        return Iterates(zeros, zeros)

    def predict(self, problem: RegressionProblem, state: Iterates) -> Predictions:
        return linear_prediction(problem, state.weights)

    def select_numbers(self, problem: RegressionProblem, k: int) -> tuple[Tensor, Tensor]:
        """Return η and β of step k, ready to multiply weights."""
        size, momentum = (select_entry(v, k, problem.x) for v in (self.step_sizes, self.momenta))
        return size.unsqueeze(-1), momentum.unsqueeze(-1)
