"""FISTA for the lasso ½‖y − Xβ‖² + α‖β‖₁: ISTA's step, taken from a point ahead of the iterate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.ista import penalties, proximal_step
from innerloop.algorithms.regression import Predictions, linear_prediction, number
from innerloop.problems.linear_regression import RegressionProblem


class Accelerated(NamedTuple):
    """The iterate, the point that the next step starts from, and the momentum's t."""

    weights: Float[Tensor, "*batch d"]
    ahead: Float[Tensor, "*batch d"]
    t: Float[Tensor, ""]


@dataclass(frozen=True, eq=False)
class FISTA(Algorithm[RegressionProblem, Accelerated]):
    """From β = 0 and t = 1."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6 (Beck and Teboulle 2009)"
    penalty: Float[Tensor, "*batch"]

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[FISTA]:
        return [cls(number(penalty)) for penalty in penalties(problem)]

    def init(self, problem: RegressionProblem) -> Accelerated:
        zeros = problem.x.new_zeros(*problem.x.shape[:-2], problem.d)
        return Accelerated(zeros, zeros, problem.x.new_ones(()))

    def step(self, problem: RegressionProblem, state: Accelerated, k: int) -> Accelerated:
        weights = proximal_step(problem, state.ahead, self.penalty)
        t = (1 + (1 + 4 * state.t.square()).sqrt()) / 2
        ahead = weights + (state.t - 1) / t * (weights - state.weights)
        return Accelerated(weights, ahead, t)

    def predict(self, problem: RegressionProblem, state: Accelerated) -> Predictions:
        return linear_prediction(problem, state.weights)
