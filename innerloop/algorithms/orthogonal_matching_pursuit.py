"""Orthogonal matching pursuit: add the feature that fits the residual best, then refit all weights.

j = argmax |Xᵀ(y − Xw)|,   S ← S ∪ {j},   w ← argmin ‖y − Xw‖ over weights that are 0 outside S
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.regression import Predictions, Weights, linear_prediction
from innerloop.problems.linear_regression import RegressionProblem

EXPLAINED = 1e-20
"""Share of ‖y‖²; if the squared residual is smaller, it is rounding and no feature is added."""


class Pursuit(NamedTuple):
    """The weights, and a mask of the features in the support S."""

    weights: Weights
    support: Bool[Tensor, "*batch d"]


@dataclass(frozen=True, eq=False)
class OrthogonalMatchingPursuit(Algorithm[RegressionProblem, Pursuit]):
    """Orthogonal matching pursuit, batched; a step adds one feature.

    It equals scikit-learn's orthogonal_mp.
    """

    source: ClassVar[str] = "Pati, Rezaiifar and Krishnaprasad 1993; sklearn's orthogonal_mp"
    problem_type: ClassVar = RegressionProblem

    def init(self, problem: RegressionProblem) -> Pursuit:
        zeros = problem.x.new_zeros(*problem.x.shape[:-2], problem.d)
        return Pursuit(zeros, zeros > 0)

    def step(self, problem: RegressionProblem, state: Pursuit, k: int) -> Pursuit:
        if k >= min(problem.n, problem.d):
            return state
        residual = problem.y - (problem.x @ state.weights.unsqueeze(-1)).squeeze(-1)
        moment = (problem.x.mT @ residual.unsqueeze(-1)).squeeze(-1)
        best = moment.abs().masked_fill(state.support, -1.0).argmax(dim=-1, keepdim=True)
        support = state.support.scatter(-1, best, True)
        inside = support.to(problem.x)
        gram = problem.x.mT @ problem.x * inside.unsqueeze(-1) * inside.unsqueeze(-2)
        moments = (problem.x.mT @ problem.y.unsqueeze(-1)).squeeze(-1) * inside
        weights, failed = torch.linalg.solve_ex(gram + torch.diag_embed(1 - inside), moments)
        power = residual.square().sum(dim=-1, keepdim=True)
        going = power > EXPLAINED * problem.y.square().sum(dim=-1, keepdim=True)
        going = going & (failed == 0).unsqueeze(-1)
        return Pursuit(
            torch.where(going, weights, state.weights), torch.where(going, support, state.support)
        )

    def predict(self, problem: RegressionProblem, state: Pursuit) -> Predictions:
        return linear_prediction(problem, state.weights)
