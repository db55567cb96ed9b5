"""The Chebyshev iteration on least squares, whose errors are Chebyshev polynomials of XᵀX/n.

Let θ and δ be the middle and half the length of an interval [l, u] that contains the spectrum, and
r = −∇R(w):

    p ← r/θ at first,   then p ← ρ' ρ p + (2ρ'/δ) r,   ρ' = 1/(2θ/δ − ρ)   from ρ = δ/θ;   w ← w + p

After k steps, no other choice of k step sizes has a smaller worst-case error on [l, u].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.regression import (
    Predictions,
    Weights,
    gradient,
    largest_curvature,
    linear_prediction,
    to_scalar_tensor,
)
from innerloop.problems.linear_regression import RegressionProblem


class ChebyshevState(NamedTuple):
    """The weights, the last change p of the weights, and ρ."""

    weights: Weights
    move: Weights
    ratio: Float[Tensor, "*batch 1"]


@dataclass(frozen=True, eq=False)
class Chebyshev(Algorithm[RegressionProblem, ChebyshevState]):
    """The Chebyshev iteration from w = 0, for spectra in the interval from `lower` to `upper`."""

    source: ClassVar[str] = "Saad 2003, Iterative methods for sparse linear systems, Algorithm 12.1"
    problem_type: ClassVar = RegressionProblem
    lower: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    upper: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Chebyshev]:
        top = largest_curvature(problem)
        ends = [(low, high) for high in (0.7, 1.2, 2.0) for low in (0.02, 0.2)]
        return [cls(to_scalar_tensor(a * top), to_scalar_tensor(b * top)) for a, b in ends]

    def init(self, problem: RegressionProblem) -> ChebyshevState:
        zeros = problem.x.new_zeros(*problem.x.shape[:-2], problem.d)
        middle, half = self._interval(problem)
        return ChebyshevState(zeros, zeros, half / middle + zeros[..., :1])

    def step(self, problem: RegressionProblem, state: ChebyshevState, k: int) -> ChebyshevState:
        middle, half = self._interval(problem)
        slope = -gradient(problem, state.weights)
        if k == 0:
            move, ratio = slope / middle, state.ratio
        else:
            ratio = 1 / (2 * middle / half - state.ratio)
            move = ratio * state.ratio * state.move + 2 * ratio / half * slope
        return ChebyshevState(state.weights + move, move, ratio)

    def predict(self, problem: RegressionProblem, state: ChebyshevState) -> Predictions:
        return linear_prediction(problem, state.weights)

    def _interval(self, problem: RegressionProblem) -> tuple[Tensor, Tensor]:
        lower, upper = (each.to(problem.x).unsqueeze(-1) for each in (self.lower, self.upper))
        half = (upper - lower) / 2
        # For an interval of length 0 the recursion divides by 0; its limit is gradient descent.
        return (upper + lower) / 2, torch.where(half == 0, 1e-12 * upper, half)
