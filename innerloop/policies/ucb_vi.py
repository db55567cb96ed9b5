"""UCB-VI on tabular decision processes: plan optimistically after every episode.

    Q_h(s, a) = min{ H, r̂_h(s, a) + b_h(s, a) + Σ_s' P̂_h(s' | s, a) V_{h+1}(s') },  V = max_a Q
    b_h(s, a) = c H √( ln(S A T / δ) / N_h(s, a) ), or H where N_h(s, a) = 0

N, r̂ and P̂ are the counts, average rewards and transition frequencies of the episodes before; S,
A, H are the sizes of the process, and T is the number of steps for which the bonus is chosen. With
c = 2, as in the theorems, the value of an untried action would be H even without the second case of
b; a smaller c, which learns faster, needs it. With a temperature it is soft UCB-VI.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.base import SoftPolicy
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP, dynamic_programming, select_row


class Counts(NamedTuple):
    """Counts of complete episodes, the values planned from them, and the current episode so far."""

    transition_counts: Float[Tensor, "*batch horizon states actions states"]
    visits: Float[Tensor, "*batch horizon states actions"]
    reward_sums: Float[Tensor, "*batch horizon states actions"]
    values: Float[Tensor, "*batch horizon states actions"]
    episode: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()


class UCBVIPolicy(SoftPolicy[TabularMDP, Counts]):
    """Plans with upper confidence bounds of values in a tabular decision process."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023; Azar et al. 2017)"
    environment_type: ClassVar[type[Environment]] = TabularMDP

    steps: int = parameter(1000, "T of the bonus, the number of steps of a game", least=1)
    delta: float = parameter(
        0.1, "δ of the bonus, the probability of failure", least=1e-12, most=1.0
    )
    bonus: float = parameter(2.0, "c, the weight of the uncertainty", least=0)

    def init_state(self, environment: TabularMDP) -> Counts:
        zeros = torch.zeros_like(environment.rewards)
        return self.plan_values(
            Counts(torch.zeros_like(environment.transitions), zeros, zeros, zeros)
        )

    def plan_values(self, counts: Counts) -> Counts:
        """Return the counts with new optimistic values, planned from them."""
        visits = counts.visits.clamp_min(1)
        horizon, states, actions = visits.shape[-3:]
        width = self.bonus_scale(horizon, states, actions) / visits.sqrt()
        width = torch.where(counts.visits == 0, float(horizon), width)
        values = dynamic_programming(
            counts.reward_sums / visits + width,
            counts.transition_counts / visits.unsqueeze(-1),
            most=horizon,
        )
        return counts._replace(values=values)

    def bonus_scale(self, horizon: int, states: int, actions: int) -> float:
        """Return c H √ln(S A T / δ), the bonus of an action that was tried once."""
        log = math.log(states * actions * self.steps / self.delta)
        return self.bonus * horizon * math.sqrt(log)

    def score_actions(
        self, state: Counts, observation: Situation
    ) -> Float[Tensor, "*batch actions"]:
        return select_row(state.values, observation)

    def plan(
        self, state: Counts, environment: TabularMDP, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch horizon states actions"]:
        return self.scores_to_probabilities(state.values)

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
        return self.plan_values(_add_episode(state, episode))


def _add_episode(counts: Counts, episode: tuple[tuple[Tensor, Tensor, Tensor], ...]) -> Counts:
    """Add an episode to the counts, without a transition after its last step."""
    s, a, r = (torch.stack(parts, dim=-1) for parts in zip(*episode, strict=True))
    horizon, states, actions = counts.visits.shape[-3:]
    index = (torch.arange(horizon, device=s.device) * states + s) * actions + a
    one = torch.ones_like(r)
    transitions = index[..., :-1] * states + s[..., 1:]
    return Counts(
        _add_at(counts.transition_counts, transitions, one[..., :-1]),
        _add_at(counts.visits, index, one),
        _add_at(counts.reward_sums, index, r),
        counts.values,
    )


def _add_at(table: Tensor, index: Tensor, amount: Tensor) -> Tensor:
    """Add amounts to the table of each environment, at indices of the flattened table."""
    batch = table.shape[: index.ndim - 1]
    flat = table.reshape(*batch, -1).scatter_add(-1, index, amount)
    return flat.reshape(table.shape)
