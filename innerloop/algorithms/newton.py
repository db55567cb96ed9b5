"""Newton's iteration for the pseudo-inverse of S = XᵀX, M ← 2M − M S M from M = αS; ŵ = M Xᵀy.

Every step squares I − M S, so M converges quadratically to S⁺ if α λ² < 2 for every eigenvalue λ of
S.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.regression import largest_curvature, linear_prediction, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem

Inverse = Float[Tensor, "*batch d d"]


@dataclass(frozen=True, eq=False)
class Newton(Algorithm[RegressionProblem, Inverse]):
    """Newton's iteration for the pseudo-inverse, with the state M; `alpha` scales the start αS."""

    source: ClassVar[str] = "Yang 2025, first paper (Fu et al. 2023)"
    problem_type: ClassVar = RegressionProblem
    special_case_of: ClassVar[tuple[str, ...]] = ("damped-newton",)
    alpha: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Newton]:
        top = problem.n * largest_curvature(problem)
        return [cls(to_scalar_tensor(2.0**power / top**2)) for power in range(-12, 1)]

    def init(self, problem: RegressionProblem) -> Inverse:
        return self.alpha.to(problem.x)[..., None, None] * (problem.x.mT @ problem.x)

    def step(self, problem: RegressionProblem, state: Inverse, k: int) -> Inverse:
        # Not (M Xᵀ)(M Xᵀ)ᵀ, although M is symmetric: the skew part of M, which is rounding, would
        # double at every step. M S M corrects it where S is invertible.
        gram = problem.x.mT @ problem.x
        return 2 * state - state @ gram @ state

    def predict(
        self, problem: RegressionProblem, state: Inverse
    ) -> Float[Tensor, "*batch queries"]:
        weights = (state @ (problem.x.mT @ problem.y.unsqueeze(-1))).squeeze(-1)
        return linear_prediction(problem, weights)
