"""Optimistic planning, the inner loop of UCB-VI: backward induction on empirical estimates.

    Q_h(s, a) = min{ H, R_h(s, a) + Σ_s' P̂_h(s' | s, a) max_a' Q_{h+1}(s', a') }

R is the average reward plus the bonus, and P̂ are the transition frequencies, both from complete
earlier episodes. The initial state contains Q of the last step of the episode. Each step of the
algorithm computes Q one step earlier in the episode, for all episodes of a game at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.problems.tabular_games import TabularGameProblem


class Plan(NamedTuple):
    """Rewards plus bonuses R, transition frequencies P̂, and values Q (0 if not yet computed)."""

    optimistic_rewards: Float[Tensor, "*batch episodes horizon states actions"]
    transitions: Float[Tensor, "*batch episodes earlier states actions states"]
    values: Float[Tensor, "*batch episodes horizon states actions"]


@dataclass(frozen=True, eq=False)
class OptimisticPlanning(Algorithm[TabularGameProblem, Plan]):
    """Optimistic planning with the bonus `width`/√N for N visits.

    For N = 0 the bonus is 2H, so that Q is H.
    """

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023; Azar et al. 2017)"
    problem_type: ClassVar = TabularGameProblem
    width: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: TabularGameProblem) -> list[OptimisticPlanning]:
        shares = torch.tensor([0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0], dtype=torch.float64)
        return [cls(share * problem.horizon) for share in shares]

    def count_steps(self, problem: TabularGameProblem) -> int:
        return problem.horizon - 1

    def init(self, problem: TabularGameProblem) -> Plan:
        states, actions = problem.sizes
        now = one_hot(problem.states, states).to(problem.rewards)
        done = one_hot(problem.actions, actions).to(problem.rewards)
        cells = now[..., :, None] * done[..., None, :]
        went = cells[..., :-1, :, :, None] * now[..., 1:, None, None, :]
        visits = _sum_before(cells, -4)
        earned = _sum_before(cells * problem.rewards[..., None, None], -4)
        moves = _sum_before(went, -5)
        some, most = visits.clamp_min(1), float(problem.horizon)
        bonus = torch.where(
            visits == 0, 2 * most, self.width.to(visits)[..., None, None, None, None] / some.sqrt()
        )
        hopes = earned / some + bonus
        values = torch.zeros_like(hopes)
        values[..., -1, :, :] = hopes[..., -1, :, :].clamp_max(most)
        return Plan(hopes, moves / some[..., :-1, :, :, None], values)

    def step(self, problem: TabularGameProblem, state: Plan, k: int) -> Plan:
        h, values = problem.horizon - 2 - k, state.values.clone()
        best = values[..., h + 1, :, :].amax(dim=-1)
        later = (state.transitions[..., h, :, :, :] * best[..., None, None, :]).sum(dim=-1)
        most = float(problem.horizon)
        values[..., h, :, :] = (state.optimistic_rewards[..., h, :, :] + later).clamp_max(most)
        return state._replace(values=values)

    def restate(self, problem: TabularGameProblem, state: Plan) -> dict[str, Tensor]:
        """Return the values before the minimum with H, and maxima of the values computed last.

        A construction computes a maximum over actions in rounds of pairs. These are the maxima of
        the first round.
        """
        later = (state.transitions * state.values[..., 1:, None, None, :, :].amax(dim=-1)).sum(-1)
        uncut = state.optimistic_rewards.clone()
        uncut[..., :-1, :, :] += later
        # Before the first episode there are no data, so all values that are computed are H.
        is_known = state.values[..., :1, :, :1, :1] > 0
        uncut = torch.where(is_known, uncut, 0.0)
        latest = uncut[..., int((~is_known).sum(dim=-3).max()), :, :]
        pairs = [pair.amax(dim=-1) for pair in latest.split(2, dim=-1)]
        return {"values": torch.cat([uncut.flatten(-3), *pairs], dim=-1)}

    def predict(
        self, problem: TabularGameProblem, state: Plan
    ) -> Float[Tensor, "*batch episodes horizon actions"]:
        """Return Q of the visited states; 0 where it is not computed yet."""
        place = problem.states[..., None, None].expand(*problem.states.shape, 1, problem.sizes[1])
        return state.values.gather(-2, place).squeeze(-2)


def _sum_before(counts: Tensor, episode_dim: int) -> Tensor:
    """Return the sum over all earlier episodes."""
    return counts.cumsum(dim=episode_dim) - counts
