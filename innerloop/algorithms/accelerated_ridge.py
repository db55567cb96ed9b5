"""Accelerated gradient descent on ridge regressions, for every prefix of a game at once.

Before step t of a game (t = 0 … n−1) the examples are (φ, r) of the t steps so far. For each of the
ridges λ_s, and G = Σ φφᵀ over the examples, a system (G + λ_s I) x = b_s is solved: b_0 = Σ r φ, so
that x_0 is the ridge estimate, and the others are given vectors. With weight 1/i, i = 2t + 1,

    x ← y − η/i ((G + λ_s I) y − b_s),   y ← x + β (x − x_before),   x = y = 0 at the start

For ‖φ‖ ≤ B the matrix over i has its spectrum in [λ_s/(2n−1), B²/2 + λ_s] for every prefix, hence
η = 1/(B²/2 + λ_s), κ = (2n−1)(B²/2 + λ_s)/λ_s, and β = (1 − q)/(1 + q) with q = 1/√κ.

That is Nesterov's method with constant momentum (2004, section 2.2).

Rate   x after k steps is (I − p_k) times the solution, p_k a polynomial of the matrix: on an
       eigenvalue whose gradient step contracts by z ∈ [0, 1 − q²], p_{k+1} = z((1 + β) p_k − β
       p_{k−1}), p_0 = 1, p_1 = z. Its roots are complex, of modulus s = √(βz) ≤ 1 − q, and p_k =
       s^k (cos kω + b sin kω / sin ω) with b = √(z/β) (1 − β)/2 ≤ q. So |p_k| ≤ (1 + kq)(1 − q)^k,
       which is at most 1, and reached at z = 1 − q²: where nothing was learned by the last step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.problems.linear_bandit_games import BanditGame

Vectors = Float[Tensor, "*batch n solves d"]


class Solves(NamedTuple):
    """y, where the next gradient is taken, and x, the solutions so far; one per step and system."""

    ahead: Vectors
    behind: Vectors


class Pace(NamedTuple):
    """η, and q = 1/√κ, of each system."""

    step_size: Float[Tensor, " solves"]
    q: Float[Tensor, " solves"]

    @classmethod
    def of(cls, ridges: Float[Tensor, " solves"], bound: float, n: int) -> Pace:
        """The pace that is safe for n steps of actions with norms up to `bound`."""
        steepest = bound**2 / 2 + ridges
        return cls(1 / steepest, (ridges / ((2 * n - 1) * steepest)).sqrt())

    @property
    def momentum(self) -> Float[Tensor, " solves"]:
        """β."""
        return (1 - self.q) / (1 + self.q)

    def left(self, k: int) -> Float[Tensor, " solves"]:
        """The largest share of the solution that k steps leave to be done, (1 + kq)(1 − q)^k."""
        return (1 + k * self.q) * (1 - self.q) ** k


@dataclass(frozen=True, eq=False)
class AcceleratedRidge(Algorithm[BanditGame, Solves], ABC):
    """The state is y and x; what else is solved for than the estimate, a subclass says."""

    ridges: Float[Tensor, " solves"]
    pace: Pace

    @abstractmethod
    def given(self, problem: BanditGame) -> Float[Tensor, "*batch n others d"]:
        """b_1, b_2, … at every step."""

    def init(self, problem: BanditGame) -> Solves:
        shape = (*problem.actions.shape, len(self.ridges), problem.d)
        zeros = problem.features.new_zeros(shape)
        return Solves(zeros, zeros)

    def step(self, problem: BanditGame, state: Solves, k: int) -> Solves:
        ridges, size, momentum = (
            values.to(problem.features).unsqueeze(-1)
            for values in (self.ridges, self.pace.step_size, self.pace.momentum)
        )
        ahead, behind = state
        pull = ahead @ self._gram(problem) + ridges * ahead - self.targets(problem)
        tokens = 2 * torch.arange(problem.n).to(ahead)[:, None, None] + 1
        moved = ahead - size / tokens * pull
        return Solves(moved + momentum * (moved - behind), moved)

    def targets(self, problem: BanditGame) -> Vectors:
        """b_0, b_1, … at every step."""
        moment = _before(problem.rewards.unsqueeze(-1) * problem.chosen, dim=-2)
        return torch.cat([moment.unsqueeze(-2), self.given(problem)], dim=-2)

    def _gram(self, problem: BanditGame) -> Float[Tensor, "*batch n d d"]:
        chosen = problem.chosen
        return _before(chosen.unsqueeze(-1) * chosen.unsqueeze(-2), dim=-3)


def _before(values: Tensor, dim: int) -> Tensor:
    """The sum over all steps before each: shifted, so that no rounding of a step comes back."""
    count = values.shape[dim]
    sums = values.cumsum(dim=dim).narrow(dim, 0, count - 1)
    return torch.cat([torch.zeros_like(values.narrow(dim, 0, 1)), sums], dim=dim)
