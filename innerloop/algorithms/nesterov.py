"""Nesterov's momentum on least squares, w ← v − η ∇R(v) from v = w + β (w − w_before)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from innerloop.algorithms.momentum import Iterates, Momentum
from innerloop.algorithms.regression import gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class Nesterov(Momentum):
    """Gradient descent that repeats a share β of its last move before it computes the gradient."""

    source: ClassVar[str] = "Nesterov 2004, Introductory lectures on convex optimization, (2.2.20)"

    def step(self, problem: RegressionProblem, state: Iterates, k: int) -> Iterates:
        size, momentum = self.select_numbers(problem, k)
        ahead = state.weights + momentum * (state.weights - state.previous)
        return Iterates(ahead - size * gradient(problem, ahead), state.weights)
