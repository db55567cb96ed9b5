"""Optimistic planning, the inside of UCB-VI: values backwards, from what each episode knows.

    Q_h(s, a) = min{ H, R_h(s, a) + Σ_s' P̂_h(s' | s, a) max_a' Q_{h+1}(s', a') }

R is the average reward plus the bonus, P̂ the frequencies, both from the whole episodes before. The
first state has Q of the last step of the episode; each step goes one step of the episode back, for
every episode of a game at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.algorithms.base import Algorithm
from innerloop.problems.tabular_games import TabularGame


class Plan(NamedTuple):
    """Hopeful rewards, frequencies, and the values found so far (0 where not yet)."""

    hopes: Float[Tensor, "*batch episodes horizon states actions"]
    moves: Float[Tensor, "*batch episodes earlier states actions states"]
    values: Float[Tensor, "*batch episodes horizon states actions"]


@dataclass(frozen=True, eq=False)
class OptimisticPlanning(Algorithm[TabularGame, Plan]):
    """The bonus is `width`/√N, or 2H where N = 0, which the minimum makes H."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023; Azar et al. 2017)"
    width: Float[Tensor, ""]

    def init(self, problem: TabularGame) -> Plan:
        states, actions = problem.sizes
        now = one_hot(problem.states, states).to(problem.rewards)
        done = one_hot(problem.actions, actions).to(problem.rewards)
        cells = now[..., :, None] * done[..., None, :]
        went = cells[..., :-1, :, :, None] * now[..., 1:, None, None, :]
        visits = _before(cells, -4)
        earned = _before(cells * problem.rewards[..., None, None], -4)
        moves = _before(went, -5)
        some, most = visits.clamp_min(1), float(problem.horizon)
        bonus = torch.where(visits == 0, 2 * most, self.width.to(visits) / some.sqrt())
        hopes = earned / some + bonus
        values = torch.zeros_like(hopes)
        values[..., -1, :, :] = hopes[..., -1, :, :].clamp_max(most)
        return Plan(hopes, moves / some[..., :-1, :, :, None], values)

    def step(self, problem: TabularGame, state: Plan, k: int) -> Plan:
        h, values = problem.horizon - 2 - k, state.values.clone()
        best = values[..., h + 1, :, :].amax(dim=-1)
        later = (state.moves[..., h, :, :, :] * best[..., None, None, :]).sum(dim=-1)
        most = float(problem.horizon)
        values[..., h, :, :] = (state.hopes[..., h, :, :] + later).clamp_max(most)
        return state._replace(values=values)

    def predict(
        self, problem: TabularGame, state: Plan
    ) -> Float[Tensor, "*batch episodes horizon actions"]:
        """Q of the states that were met; 0 where it was not found yet."""
        place = problem.states[..., None, None].expand(*problem.states.shape, 1, problem.sizes[1])
        return state.values.gather(-2, place).squeeze(-2)


def _before(counted: Tensor, episodes: int) -> Tensor:
    """The sum over the episodes before each; `episodes` is their axis."""
    return counted.cumsum(dim=episodes) - counted
