"""Accelerated gradient descent on ridge regressions, for every prefix of a game at once.

Before step t of a game (t = 0 … n−1) there are t examples (φ, r), one for each earlier step, with
the Gram matrix G = Σ φφᵀ. For each ridge λ_s the algorithm solves a system (G + λ_s I) x = b_s.
With b_0 = Σ r φ, x_0 is the ridge estimate; a subclass defines the other b_s. With the factor 1/i
for i = 2t + 1, a step is

    x ← y − η/i ((G + λ_s I) y − b_s),   y ← x + β (x − x_before),   x = y = 0 at the start

For ‖φ‖ ≤ B, the spectrum of (G + λ_s I)/i is in [λ_s/(2n−1), B²/2 + λ_s] for every prefix.
Therefore η = 1/(B²/2 + λ_s), κ = (2n−1)(B²/2 + λ_s)/λ_s, and β = (1 − q)/(1 + q) with q = 1/√κ.

That is Nesterov's method with constant momentum (2004, section 2.2).

Rate   x after k steps is (I − p_k) times the solution, where p_k is a polynomial of the matrix. If
       a gradient step multiplies the error along an eigenvector by z ∈ [0, 1 − q²], then p_{k+1} =
       z((1 + β) p_k − β p_{k−1}), p_0 = 1, p_1 = z. The characteristic roots are complex, with
       modulus s = √(βz) ≤ 1 − q, and p_k = s^k (cos kω + b sin kω / sin ω) with
       b = √(z/β) (1 − β)/2 ≤ q. So |p_k| ≤ (1 + kq)(1 − q)^k, which is at most 1. Equality holds
       at z = 1 − q², which occurs at t = n−1 in directions without examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.problems.linear_bandit_games import BanditGameProblem

Vectors = Float[Tensor, "*batch n solves d"]


class SolverState(NamedTuple):
    """The iterates: y (`ahead`), where the next gradient is taken, and x (`behind`), the solution.

    Each has one vector per step of the game and per system.
    """

    ahead: Vectors
    behind: Vectors


class StepRates(NamedTuple):
    """The step size η and q = 1/√κ of each system."""

    step_size: Float[Tensor, " solves"]
    q: Float[Tensor, " solves"]

    @classmethod
    def of(cls, ridges: Float[Tensor, " solves"], bound: float, n: int) -> StepRates:
        """Return rates that converge for games of n steps and actions with norms up to `bound`."""
        steepest = bound**2 / 2 + ridges
        return cls(1 / steepest, (ridges / ((2 * n - 1) * steepest)).sqrt())

    @property
    def momentum(self) -> Float[Tensor, " solves"]:
        """The momentum β = (1 − q)/(1 + q) of each system."""
        return (1 - self.q) / (1 + self.q)

    def remaining_share(self, k: int) -> Float[Tensor, " solves"]:
        """Return (1 + kq)(1 − q)^k, a bound of the relative error of the solution after k steps."""
        return (1 + k * self.q) * (1 - self.q) ** k


@dataclass(frozen=True, eq=False)
class AcceleratedRidge(Algorithm[BanditGameProblem, SolverState], ABC):
    """Base class that solves for the ridge estimate and for further systems of a subclass."""

    problem_type: ClassVar = BanditGameProblem

    ridges: Float[Tensor, " solves"]
    rates: StepRates

    @abstractmethod
    def extra_targets(self, problem: BanditGameProblem) -> Float[Tensor, "*batch n others d"]:
        """Return b_1, b_2, … at every step of the game."""

    def init(self, problem: BanditGameProblem) -> SolverState:
        shape = (*problem.actions.shape, len(self.ridges), problem.d)
        zeros = problem.features.new_zeros(shape)
        return SolverState(zeros, zeros)

    def step(self, problem: BanditGameProblem, state: SolverState, k: int) -> SolverState:
        ridges, size, momentum = (
            values.to(problem.features).unsqueeze(-1)
            for values in (self.ridges, self.rates.step_size, self.rates.momentum)
        )
        ahead, behind = state
        pull = ahead @ self._gram(problem) + ridges * ahead - self.targets(problem)
        tokens = 2 * torch.arange(problem.n).to(ahead)[:, None, None] + 1
        moved = ahead - size / tokens * pull
        return SolverState(moved + momentum * (moved - behind), moved)

    def targets(self, problem: BanditGameProblem) -> Vectors:
        """Return b_0, b_1, … at every step of the game."""
        moment = _sum_before(problem.rewards.unsqueeze(-1) * problem.chosen_features, dim=-2)
        return torch.cat([moment.unsqueeze(-2), self.extra_targets(problem)], dim=-2)

    def _gram(self, problem: BanditGameProblem) -> Float[Tensor, "*batch n d d"]:
        chosen = problem.chosen_features
        return _sum_before(chosen.unsqueeze(-1) * chosen.unsqueeze(-2), dim=-3)


def _sum_before(values: Tensor, dim: int) -> Tensor:
    """Return the sum over all earlier steps.

    Cumulative sums are shifted by one step; subtracting each step's own value would round.
    """
    count = values.shape[dim]
    sums = values.cumsum(dim=dim).narrow(dim, 0, count - 1)
    return torch.cat([torch.zeros_like(values.narrow(dim, 0, 1)), sums], dim=dim)
