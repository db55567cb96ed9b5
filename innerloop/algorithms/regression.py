"""Shared parts of the algorithms for linear regression: gradients, predictions, base classes."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem

Weights = Float[Tensor, "*batch d"]
Predictions = Float[Tensor, "*batch queries"]


def gradient(problem: RegressionProblem, weights: Weights) -> Weights:
    """Return ∇R(w) = (1/n) Σᵢ (⟨w, xᵢ⟩ − yᵢ) xᵢ, for R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²."""
    residual = (problem.x @ weights.unsqueeze(-1)).squeeze(-1) - problem.y
    return (problem.x.mT @ residual.unsqueeze(-1)).squeeze(-1) / problem.n


def linear_prediction(problem: RegressionProblem, weights: Weights) -> Predictions:
    """Return ⟨w, x⟩ for every query."""
    return (problem.x_query @ weights.unsqueeze(-1)).squeeze(-1)


def largest_curvature(problem: RegressionProblem) -> float:
    """Return the mean of λmax(XᵀX/n) over instances.

    Gradient descent diverges for step sizes above 2/λmax.
    """
    gram = problem.x.mT @ problem.x / problem.n
    return float(torch.linalg.eigvalsh(gram)[..., -1].mean())


def correlation(problem: RegressionProblem) -> float:
    """Return the mean of max |Xᵀy| over instances.

    The lasso weights of an instance are 0 for penalties above max |Xᵀy|.
    """
    moment = problem.x.mT @ problem.y.unsqueeze(-1)
    return float(moment.abs().amax(dim=(-2, -1)).mean())


def check_penalty(penalty: Float[Tensor, "*batch"]) -> None:
    """Check that a penalty is positive, else raise `InputError`."""
    least = float(penalty.detach().min())
    if not least > 0:
        raise InputError(
            f"penalty must be positive, got {least}: without a penalty, use least squares"
        )


def to_scalar_tensor(value: float) -> Float[Tensor, ""]:
    """Return a number as a float64 tensor, the type of scalar hyper-parameters."""
    return torch.tensor(value, dtype=torch.float64)


class LinearModel(Algorithm[RegressionProblem, Weights], ABC):
    """An iteration from w = 0 whose state is the weights."""

    problem_type: ClassVar = RegressionProblem

    def init(self, problem: RegressionProblem) -> Weights:
        return problem.x.new_zeros(*problem.x.shape[:-2], problem.d)

    def predict(self, problem: RegressionProblem, state: Weights) -> Predictions:
        return linear_prediction(problem, state)


class ExactModel(LinearModel, ABC):
    """A closed-form solution: the first state is the solution, and steps do not change it."""

    has_steps: ClassVar[bool] = False

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return state
