"""Conjugate gradients on the normal equations XᵀX w = Xᵀy from w = 0, without hyper-parameters.

    α = ‖r‖²/‖Xp‖²,   w ← w + α p,   r ← r − α XᵀX p,   p ← r + (‖r‖²/‖r_before‖²) p

w after k steps has the least ‖Xw − y‖ of all weights in span{g, XᵀX g, …, (XᵀX)^(k−1) g}, g = Xᵀy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.regression import Predictions, Weights, linear_prediction
from innerloop.problems.linear_regression import RegressionProblem

CONVERGED = 1e-28
"""The iteration ends when ‖r‖² falls below this share of ‖Xᵀy‖², which is rounding error."""


class ConjugateState(NamedTuple):
    """The weights, the residual r = Xᵀ(y − Xw), and the direction p of the next step."""

    weights: Weights
    residual: Weights
    direction: Weights


@dataclass(frozen=True, eq=False)
class ConjugateGradients(Algorithm[RegressionProblem, ConjugateState]):
    """Conjugate gradients, which solve least squares in d steps up to rounding."""

    source: ClassVar[str] = "Hestenes and Stiefel 1952; CGNR of Saad 2003, Algorithm 8.4"
    problem_type: ClassVar = RegressionProblem

    def init(self, problem: RegressionProblem) -> ConjugateState:
        moment = _moment(problem)
        return ConjugateState(torch.zeros_like(moment), moment, moment)

    def step(self, problem: RegressionProblem, state: ConjugateState, k: int) -> ConjugateState:
        weights, residual, direction = state
        image = (problem.x @ direction.unsqueeze(-1)).squeeze(-1)
        left, power = _square(residual), _square(image)
        going = (left > CONVERGED * _square(_moment(problem))) & (power > 0)
        size = torch.where(going, left / torch.where(going, power, 1.0), 0.0)
        after = residual - size * (problem.x.mT @ image.unsqueeze(-1)).squeeze(-1)
        share = torch.where(going, _square(after) / torch.where(going, left, 1.0), 0.0)
        return ConjugateState(weights + size * direction, after, after + share * direction)

    def predict(self, problem: RegressionProblem, state: ConjugateState) -> Predictions:
        return linear_prediction(problem, state.weights)


def _moment(problem: RegressionProblem) -> Weights:
    """Return Xᵀy."""
    return (problem.x.mT @ problem.y.unsqueeze(-1)).squeeze(-1)


def _square(vector: Tensor) -> Tensor:
    """Return ‖v‖², with a last dimension of 1."""
    return vector.square().sum(dim=-1, keepdim=True)
