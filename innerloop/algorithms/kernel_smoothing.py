"""Kernel smoothing, the mean of the labels weighted by nearness (one state, no steps).

    ŷ = Σᵢ softmaxᵢ(κ s(x, xᵢ)) yᵢ,   s(x, xᵢ) = ⟨x, xᵢ⟩ or −‖x − xᵢ‖²/2

It is softmax attention from the query to the examples. With s = −‖x − xᵢ‖²/2 it is the estimator
of Nadaraya and Watson with a Gaussian kernel of width κ^(−1/2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.regression import Predictions, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem

Nearness = Literal["product", "distance"]


@dataclass(frozen=True, eq=False)
class KernelSmoothing(Algorithm[RegressionProblem, Predictions]):
    """Kernel smoothing with κ = `sharpness`.

    κ = 0 gives the mean label, κ = ∞ the label of the nearest example.
    """

    source: ClassVar[str] = "Nadaraya 1964, Watson 1964; attention as in Vaswani et al. 2017"
    problem_type: ClassVar = RegressionProblem
    has_steps: ClassVar[bool] = False
    sharpness: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    nearness: Nearness = "product"

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[KernelSmoothing]:
        row = float(problem.x.square().sum(dim=-1).mean())
        return [
            cls(to_scalar_tensor(share / row), nearness)
            for nearness in get_args(Nearness)
            for share in (0.1, 0.5, 2.0, 8.0, 30.0)
        ]

    def init(self, problem: RegressionProblem) -> Predictions:
        scores = problem.x_query @ problem.x.mT
        if self.nearness == "distance":
            # ‖x‖² of the query is the same for all examples and cancels in the softmax.
            scores = scores - problem.x.square().sum(dim=-1).unsqueeze(-2) / 2
        shares = (self.sharpness.to(scores)[..., None, None] * scores).softmax(dim=-1)
        return (shares @ problem.y.unsqueeze(-1)).squeeze(-1)

    def step(self, problem: RegressionProblem, state: Predictions, k: int) -> Predictions:
        return state

    def predict(self, problem: RegressionProblem, state: Predictions) -> Predictions:
        return state
