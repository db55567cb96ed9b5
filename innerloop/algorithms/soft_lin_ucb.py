"""Soft LinUCB with its ridge solves by accelerated gradient descent, at every step of a game.

    log odds of action k  =  log softmax_k( (⟨a_k, ŵ⟩ + α √⟨a_k, (G + λI)⁻¹ a_k⟩) / τ )

There is one system for ŵ and one for each (G + λI)⁻¹ a_k (see accelerated_ridge.py). As the number
of steps k grows, the odds converge to those of the policy lin-ucb, at the rate (1 + kq)(1 − q)^k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge, SolverState
from innerloop.problems.linear_bandit_games import BanditGameProblem


@dataclass(frozen=True, eq=False)
class SoftLinUCB(AcceleratedRidge):
    """Soft LinUCB, which predicts the log odds at every step of the game; all ridges are λ."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 8 (Lin et al. 2023)"
    alpha: Float[Tensor, ""]
    temperature: Float[Tensor, ""]

    def extra_targets(self, problem: BanditGameProblem) -> Float[Tensor, "*batch n arms d"]:
        return problem.features

    def predict(
        self, problem: BanditGameProblem, state: SolverState
    ) -> Float[Tensor, "*batch n arms"]:
        features, (estimate, turned) = problem.features, state.behind.split([1, problem.arms], -2)
        values = (features * estimate).sum(dim=-1)
        # The square is negative only by rounding: see the rate in accelerated_ridge.py.
        widths = (features * turned).sum(dim=-1).clamp_min(0.0).sqrt()
        scores = values + self.alpha.to(values) * widths
        return (scores / self.temperature.to(scores)).log_softmax(dim=-1)
