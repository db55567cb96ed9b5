"""FISTA for the lasso ½‖y − Xβ‖² + α‖β‖₁: ISTA's step, taken from a point ahead of the iterate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.ista import candidate_penalties, proximal_step
from innerloop.algorithms.regression import Predictions, linear_prediction, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem


class FISTAState(NamedTuple):
    """The iterate, the point `ahead` where the next step starts, and the momentum's t."""

    weights: Float[Tensor, "*batch d"]
    ahead: Float[Tensor, "*batch d"]
    t: Float[Tensor, ""]


@dataclass(frozen=True, eq=False)
class FISTA(Algorithm[RegressionProblem, FISTAState]):
    """FISTA, from β = 0 and t = 1."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6 (Beck and Teboulle 2009)"
    problem_type: ClassVar = RegressionProblem
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[FISTA]:
        return [cls(to_scalar_tensor(penalty)) for penalty in candidate_penalties(problem)]

    def init(self, problem: RegressionProblem) -> FISTAState:
        zeros = problem.x.new_zeros(*problem.x.shape[:-2], problem.d)
        return FISTAState(zeros, zeros, problem.x.new_ones(()))

    def step(self, problem: RegressionProblem, state: FISTAState, k: int) -> FISTAState:
        weights = proximal_step(problem, state.ahead, self.penalty)
        t = (1 + (1 + 4 * state.t.square()).sqrt()) / 2
        ahead = weights + (state.t - 1) / t * (weights - state.weights)
        return FISTAState(weights, ahead, t)

    def predict(self, problem: RegressionProblem, state: FISTAState) -> Predictions:
        return linear_prediction(problem, state.weights)
