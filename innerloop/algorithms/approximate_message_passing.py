"""Approximate message passing (AMP) for sparse weights: ISTA with a corrected residual.

With A = X/√n and b = y/√n, from β = 0 and z = b:

    β ← S_θ(β + Aᵀz),   θ = c ‖z‖/√n,   z ← b − Aβ + z ‖β‖₀/n

S is the soft threshold. Because of the last term (Onsager's), for random X, β + Aᵀz is distributed
as the true β plus Gaussian noise with standard deviation ‖z‖/√n.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter, select_entry
from innerloop.algorithms.ista import soft_threshold
from innerloop.algorithms.regression import Predictions, Weights, linear_prediction
from innerloop.problems.linear_regression import RegressionProblem


class Messages(NamedTuple):
    """The weights β and the corrected residuals z."""

    weights: Weights
    residual: Float[Tensor, "*batch n"]


@dataclass(frozen=True, eq=False)
class ApproximateMessagePassing(Algorithm[RegressionProblem, Messages]):
    """AMP with c = `multiples[k]` at step k; fewer values than steps are repeated."""

    source: ClassVar[str] = "Donoho, Maleki and Montanari 2009, Message-passing algorithms, (1)–(2)"
    problem_type: ClassVar = RegressionProblem
    multiples: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[ApproximateMessagePassing]:
        multiples = torch.tensor([[0.5], [1.0], [1.5], [2.0], [3.0]], dtype=torch.float64)
        return [cls(multiple) for multiple in multiples]

    def init(self, problem: RegressionProblem) -> Messages:
        zeros = problem.x.new_zeros(*problem.x.shape[:-2], problem.d)
        return Messages(zeros, problem.y / problem.n**0.5)

    def step(self, problem: RegressionProblem, state: Messages, k: int) -> Messages:
        n, root = problem.n, problem.n**0.5
        multiple = select_entry(self.multiples, k, problem.x).unsqueeze(-1)
        threshold = multiple * state.residual.norm(dim=-1, keepdim=True) / root
        moved = state.weights + (problem.x.mT @ state.residual.unsqueeze(-1)).squeeze(-1) / root
        weights = soft_threshold(moved, threshold)
        active = (weights != 0).to(weights).sum(dim=-1, keepdim=True)
        fit = (problem.x @ weights.unsqueeze(-1)).squeeze(-1)
        return Messages(weights, (problem.y - fit) / root + state.residual * active / n)

    def predict(self, problem: RegressionProblem, state: Messages) -> Predictions:
        return linear_prediction(problem, state.weights)
