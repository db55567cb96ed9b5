"""Coordinate descent for the lasso ½‖y − Xβ‖² + α‖β‖₁: minimise over one weight after another.

A step is a sweep over all weights, in their order, from β = 0. With α = 0 it is the method of Gauss
and Seidel for the normal equations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.ista import candidate_penalties, soft_threshold
from innerloop.algorithms.regression import LinearModel, Weights, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class CoordinateDescent(LinearModel):
    """Coordinate descent, which converges to the lasso weights.

    A feature that is 0 in all examples gets the weight 0.
    """

    source: ClassVar[str] = "Friedman, Hastie and Tibshirani 2010, Regularization paths, eq. (5)"
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[CoordinateDescent]:
        return [cls(to_scalar_tensor(penalty)) for penalty in (0.0, *candidate_penalties(problem))]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        gram = problem.x.mT @ problem.x
        pull = (problem.x.mT @ problem.y.unsqueeze(-1) - gram @ state.unsqueeze(-1)).squeeze(-1)
        penalty, weights = self.penalty.to(problem.x), []
        for j in range(problem.d):
            own, before = gram[..., j, j], state[..., j]
            there = torch.where(own > 0, own, 1.0)
            after = soft_threshold(pull[..., j] + own * before, penalty) / there
            weights.append(torch.where(own > 0, after, 0.0))
            pull = pull - gram[..., j] * (weights[-1] - before).unsqueeze(-1)
        return torch.stack(weights, dim=-1)
