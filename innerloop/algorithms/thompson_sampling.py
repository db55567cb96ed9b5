"""Soft Thompson sampling with its solves by accelerated gradient descent, at every step of a game.

    w = ŵ + s G^(−1/2) z,   log odds of action k = log softmax_k( ⟨a_k, w⟩ / τ ),   z given

G here has the ridge in it. G^(−1/2) z is Σ_j weight_j (G + shift_j I)⁻¹ z, see inverse_root.py: one
system for each term, and one for ŵ, see accelerated_ridge.py. The more steps and terms, the nearer
to the policy linear-thompson with the same z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge, Solves
from innerloop.problems.linear_bandit_games import BanditGame


@dataclass(frozen=True, eq=False)
class ThompsonSampling(AcceleratedRidge):
    """The prediction is the logarithm of the odds at every step. `mix` is what w takes of each
    system's solution: 1 of the estimate, s times the weight of each term."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 10 (Lin et al. 2023)"
    mix: Float[Tensor, " solves"]
    temperature: Float[Tensor, ""]

    def given(self, problem: BanditGame) -> Float[Tensor, "*batch n terms d"]:
        z = problem.noise.unsqueeze(-2)
        return z.expand(*z.shape[:-2], len(self.ridges) - 1, problem.d)

    def weights(self, problem: BanditGame, state: Solves) -> Float[Tensor, "*batch n d"]:
        """w at every step."""
        return (self.mix.to(problem.features).unsqueeze(-1) * state.behind).sum(dim=-2)

    def predict(self, problem: BanditGame, state: Solves) -> Float[Tensor, "*batch n arms"]:
        drawn = self.weights(problem, state).unsqueeze(-2)
        scores = (problem.features * drawn).sum(dim=-1)
        return (scores / self.temperature.to(scores)).log_softmax(dim=-1)
