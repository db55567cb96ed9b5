"""Soft Thompson sampling with its solves by accelerated gradient descent, at every step of a game.

    w = ŵ + s G^(−1/2) z,   log odds of action k = log softmax_k( ⟨a_k, w⟩ / τ )

The normals z belong to the problem, and G includes the ridge. G^(−1/2) z is approximated by
Σ_j weight_j (G + shift_j I)⁻¹ z (inverse_root.py). There is one system for each term and one for ŵ
(accelerated_ridge.py). As the numbers of steps and terms grow, the odds converge to those of the
policy linear-thompson with the same z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge, SolverState
from innerloop.problems.linear_bandit_games import BanditGameProblem


@dataclass(frozen=True, eq=False)
class ThompsonSampling(AcceleratedRidge):
    """Soft Thompson sampling, which predicts the log odds at every step of the game.

    w is the sum of the systems' solutions, weighted by `mix`: 1 for the estimate ŵ, and s times its
    weight for each term.
    """

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 10 (Lin et al. 2023)"
    mix: Float[Tensor, " solves"]
    temperature: Float[Tensor, ""]

    def extra_targets(self, problem: BanditGameProblem) -> Float[Tensor, "*batch n terms d"]:
        z = problem.noise.unsqueeze(-2)
        return z.expand(*z.shape[:-2], len(self.ridges) - 1, problem.d)

    def weights(
        self, problem: BanditGameProblem, state: SolverState
    ) -> Float[Tensor, "*batch n d"]:
        """Return w at every step of the game."""
        return (self.mix.to(problem.features).unsqueeze(-1) * state.behind).sum(dim=-2)

    def predict(
        self, problem: BanditGameProblem, state: SolverState
    ) -> Float[Tensor, "*batch n arms"]:
        weights = self.weights(problem, state).unsqueeze(-2)
        scores = (problem.features * weights).sum(dim=-1)
        return (scores / self.temperature.to(scores)).log_softmax(dim=-1)
