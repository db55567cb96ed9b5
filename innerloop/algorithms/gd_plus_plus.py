"""GD++: preconditioned gradient descent on covariates that are themselves transformed at each step.

After k steps the covariates are T x, and the weights are those of the untransformed x:

    w ← w − Tᵀ A T ∇R(w)
    T ← T − B T G Tᵀ Aᵀ T          G = (1/n) Σᵢ xᵢ xᵢᵀ

With B = 0 it is preconditioned gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, entry
from innerloop.algorithms.gradient_descent import step_sizes
from innerloop.algorithms.regression import gradient, linear_prediction
from innerloop.problems.linear_regression import RegressionProblem


class Transformed(NamedTuple):
    """Weights on the original covariates, and the map T that the covariates have gone through."""

    weights: Float[Tensor, "*batch d"]
    transform: Float[Tensor, "*batch d d"]


@dataclass(frozen=True, eq=False)
class GDPlusPlus(Algorithm[RegressionProblem, Transformed]):
    """Step k uses A = `preconditioners[k]` and B = `transforms[k]`, symmetric or not."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (13); GD++ of von Oswald et al. 2022"
    preconditioners: Float[Tensor, "steps *batch d d"]
    transforms: Float[Tensor, "steps *batch d d"]

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[GDPlusPlus]:
        identity = torch.eye(problem.d, dtype=torch.float64).unsqueeze(0)
        sizes, shares = step_sizes(problem), (0.0, 0.5)
        return [cls(size * identity, share * identity) for size in sizes for share in shares]

    def init(self, problem: RegressionProblem) -> Transformed:
        batch = problem.x.shape[:-2]
        identity = torch.eye(problem.d).to(problem.x).expand(*batch, problem.d, problem.d)
        return Transformed(problem.x.new_zeros(*batch, problem.d), identity)

    def step(self, problem: RegressionProblem, state: Transformed, k: int) -> Transformed:
        a, b = (entry(m, k, problem.x) for m in (self.preconditioners, self.transforms))
        t, covariance = state.transform, problem.x.mT @ problem.x / problem.n
        slope = gradient(problem, state.weights).unsqueeze(-1)
        weights = state.weights - (t.mT @ (a @ (t @ slope))).squeeze(-1)
        return Transformed(weights, t - b @ t @ covariance @ t.mT @ a.mT @ t)

    def predict(
        self, problem: RegressionProblem, state: Transformed
    ) -> Float[Tensor, "*batch queries"]:
        return linear_prediction(problem, state.weights)
