"""GD++: preconditioned gradient descent on covariates that are transformed at each step.

After k steps the covariates are T x; the weights refer to the untransformed x:

    w ← w − Tᵀ A T ∇R(w)
    T ← T − B T G Tᵀ Aᵀ T          G = (1/n) Σᵢ xᵢ xᵢᵀ

With B = 0 it is preconditioned gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter, select_entry
from innerloop.algorithms.gradient_descent import candidate_step_sizes
from innerloop.algorithms.regression import gradient, linear_prediction
from innerloop.problems.linear_regression import RegressionProblem


class TransformedWeights(NamedTuple):
    """Weights on the original covariates, and the accumulated map T of the covariates."""

    weights: Float[Tensor, "*batch d"]
    transform: Float[Tensor, "*batch d d"]


@dataclass(frozen=True, eq=False)
class GDPlusPlus(Algorithm[RegressionProblem, TransformedWeights]):
    """GD++ whose step k uses A = `preconditioners[k]` and B = `transforms[k]`, symmetric or not."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (13); GD++ of von Oswald et al. 2022"
    problem_type: ClassVar = RegressionProblem
    preconditioners: Float[Tensor, "steps *batch d d"] = field(
        metadata=hyperparameter(per_step=True)
    )
    transforms: Float[Tensor, "steps *batch d d"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[GDPlusPlus]:
        identity = torch.eye(problem.d, dtype=torch.float64).unsqueeze(0)
        sizes, shares = candidate_step_sizes(problem), (0.0, 0.5)
        return [cls(size * identity, share * identity) for size in sizes for share in shares]

    def init(self, problem: RegressionProblem) -> TransformedWeights:
        batch = problem.x.shape[:-2]
        identity = torch.eye(problem.d).to(problem.x).expand(*batch, problem.d, problem.d)
        return TransformedWeights(problem.x.new_zeros(*batch, problem.d), identity)

    def step(
        self, problem: RegressionProblem, state: TransformedWeights, k: int
    ) -> TransformedWeights:
        a, b = (select_entry(m, k, problem.x) for m in (self.preconditioners, self.transforms))
        t, covariance = state.transform, problem.x.mT @ problem.x / problem.n
        slope = gradient(problem, state.weights).unsqueeze(-1)
        weights = state.weights - (t.mT @ (a @ (t @ slope))).squeeze(-1)
        return TransformedWeights(weights, t - b @ t @ covariance @ t.mT @ a.mT @ t)

    def predict(
        self, problem: RegressionProblem, state: TransformedWeights
    ) -> Float[Tensor, "*batch queries"]:
        return linear_prediction(problem, state.weights)
