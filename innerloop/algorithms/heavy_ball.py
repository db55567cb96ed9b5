"""The heavy ball on least squares, w ← w − η ∇R(w) + β (w − w_before): Polyak's momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from innerloop.algorithms.momentum import Iterates, Momentum
from innerloop.algorithms.regression import gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class HeavyBall(Momentum):
    """Gradient descent that repeats a share β of its last move."""

    source: ClassVar[str] = "Polyak 1964, Some methods of speeding up the convergence, eq. (9)"

    def step(self, problem: RegressionProblem, state: Iterates, k: int) -> Iterates:
        size, momentum = self.select_numbers(problem, k)
        move = momentum * (state.weights - state.previous)
        return Iterates(
            state.weights - size * gradient(problem, state.weights) + move, state.weights
        )
