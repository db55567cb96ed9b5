"""UCB-VI on tabular decision processes: the best plan for what could be, re-made every episode.

    Q_h(s, a) = min{ H, r̂_h(s, a) + b_h(s, a) + Σ_s' P̂_h(s' | s, a) V_{h+1}(s') },  V = max_a Q
    b_h(s, a) = c H √( ln(S A T / δ) / N_h(s, a) ), or H where N_h(s, a) = 0

N, r̂ and P̂ are the counts, average rewards and frequencies of the episodes before. S, A, H are the
sizes of the process and T is the number of steps that the bonus is meant for. At c = 2, where the
theorems are, whatever was never tried is worth H by the first form too; a smaller c, which learns
sooner, needs the second. With a temperature it is soft UCB-VI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.base import SoftPolicy
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP, at, dynamic_programming


class Counts(NamedTuple):
    """What was counted in whole episodes, the episode under way, and the values planned from it."""

    moves: Float[Tensor, "*batch horizon states actions states"]
    visits: Float[Tensor, "*batch horizon states actions"]
    earned: Float[Tensor, "*batch horizon states actions"]
    values: Float[Tensor, "*batch horizon states actions"]
    episode: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class UCBVI(SoftPolicy[TabularMDP, Counts]):
    """Optimism about a decision process."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023; Azar et al. 2017)"
    plays: ClassVar[type[Environment]] = TabularMDP

    steps: int = parameter(1000, "T of the bonus, the steps to be played", least=1)
    delta: float = parameter(0.1, "δ of the bonus, the odds of failure", least=1e-12, most=1.0)
    bonus: float = parameter(2.0, "c, the weight of the uncertainty", least=0)

    def start(self, environment: TabularMDP) -> Counts:
        zeros = torch.zeros_like(environment.rewards)
        return self.planned(Counts(torch.zeros_like(environment.transitions), zeros, zeros, zeros))

    def planned(self, counts: Counts) -> Counts:
        """The same counts with the values that follow from them."""
        visits = counts.visits.clamp_min(1)
        horizon, states, actions = visits.shape[-3:]
        width = self.width(horizon, states, actions) / visits.sqrt()
        width = torch.where(counts.visits == 0, float(horizon), width)
        values = dynamic_programming(
            counts.earned / visits + width, counts.moves / visits.unsqueeze(-1), most=horizon
        )
        return counts._replace(values=values)

    def width(self, horizon: int, states: int, actions: int) -> float:
        """The bonus of what was tried once, c H √ln(S A T / δ)."""
        log = math.log(states * actions * self.steps / self.delta)
        return self.bonus * horizon * math.sqrt(log)

    def scores(self, state: Counts, observation: Situation) -> Float[Tensor, "*batch actions"]:
        return at(state.values, observation)

    def plan(
        self, state: Counts, environment: TabularMDP, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch horizon states actions"]:
        return self.softened(state.values)

    def update(
        self,
        state: Counts,
        observation: Situation,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Counts:
        episode = (*state.episode, (observation.state, action, reward))
        if len(episode) < state.values.shape[-3]:
            return state._replace(episode=episode)
        return self.planned(_counted(state, episode))


def _counted(counts: Counts, episode: tuple[tuple[Tensor, Tensor, Tensor], ...]) -> Counts:
    """The counts with an episode added; where its last step led to is not known, nor needed."""
    s, a, r = (torch.stack(parts, dim=-1) for parts in zip(*episode, strict=True))
    horizon, states, actions = counts.visits.shape[-3:]
    place = (torch.arange(horizon, device=s.device) * states + s) * actions + a
    one = torch.ones_like(r)
    moved = place[..., :-1] * states + s[..., 1:]
    return Counts(
        _added(counts.moves, moved, one[..., :-1]),
        _added(counts.visits, place, one),
        _added(counts.earned, place, r),
        counts.values,
    )


def _added(table: Tensor, place: Tensor, amount: Tensor) -> Tensor:
    """A table of one environment each with amounts added at flat places."""
    batch = table.shape[: place.ndim - 1]
    flat = table.reshape(*batch, -1).scatter_add(-1, place, amount)
    return flat.reshape(table.shape)
