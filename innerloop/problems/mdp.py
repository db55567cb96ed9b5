"""Tabular Markov decision processes, in episodes of H steps, and what they are worth.

In state s at step h, action a earns R_h(s, a) and moves to s' with probability P_h(s' | s, a). The
regret of an episode is V* − V^π from the first step on, both by dynamic programming, where π is
what the policy had planned when the episode began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.problems.base import check_numbers, check_tensors
from innerloop.problems.environment import Environment, check_probabilities, choose


class Situation(NamedTuple):
    """What a decision process shows: the step of the episode, counted from 0, and the state."""

    step: int
    state: Int[Tensor, "*batch"]


class EpisodeHistory(NamedTuple):
    """What was seen, chosen and earned, episode by episode."""

    states: Int[Tensor, "*batch episodes horizon"]
    actions: Int[Tensor, "*batch episodes horizon"]
    rewards: Float[Tensor, "*batch episodes horizon"]

    def prefix(self, episodes: int) -> EpisodeHistory:
        """The first episodes alone."""
        return EpisodeHistory(*(part[..., :episodes, :] for part in self))


@dataclass(frozen=True, eq=False)
class TabularMDP(Environment):
    """A batch of decision processes; rewards lie in [0, 1] and are not random."""

    transitions: Float[Tensor, "*batch horizon states actions states"]
    rewards: Float[Tensor, "*batch horizon states actions"]
    initial: Float[Tensor, "*batch states"]

    def __post_init__(self) -> None:
        tensors = {
            "transitions": self.transitions,
            "rewards": self.rewards,
            "initial": self.initial,
        }
        check_tensors(tensors, "torch.as_tensor takes arrays and lists")
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        fits = self.rewards.ndim >= 3
        fits = fits and self.transitions.shape == (*self.rewards.shape, self.states)
        if not fits or self.initial.shape != (*self.batch, self.states):
            raise InputError(
                "expected transitions (*batch, H, S, A, S), rewards (*batch, H, S, A), "
                f"initial (*batch, S); got {shapes}"
            )
        if 0 in self.rewards.shape:
            raise InputError(f"need at least one step, state and action; got {shapes}")
        check_numbers(tensors)
        check_probabilities("transitions", self.transitions)
        check_probabilities("initial", self.initial)
        if not bool(((self.rewards >= 0) & (self.rewards <= 1)).all()):
            least, most = float(self.rewards.min()), float(self.rewards.max())
            raise InputError(f"rewards must lie in [0, 1], got {least:.3g} … {most:.3g}")

    @property
    def horizon(self) -> int:
        return self.rewards.shape[-3]

    @property
    def states(self) -> int:
        return self.rewards.shape[-2]

    @property
    def actions(self) -> int:
        return self.rewards.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.rewards.shape[:-3])

    @property
    def like(self) -> Tensor:
        return self.rewards

    @cached_property
    def best(self) -> Float[Tensor, "*batch horizon states actions"]:
        """Q*, the action values of the best plan."""
        return dynamic_programming(self.rewards, self.transitions)

    def value(
        self, plan: Float[Tensor, "*batch horizon states actions"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """What an episode earns on average under a plan; under the best one if none is given."""
        if plan is None:
            first = self.best[..., 0, :, :].amax(dim=-1)
        else:
            q = dynamic_programming(self.rewards, self.transitions, plan=plan)
            first = (plan * q)[..., 0, :, :].sum(dim=-1)
        return (self.initial * first).sum(dim=-1)

    def check_steps(self, steps: int) -> None:
        super().check_steps(steps)
        if steps % self.horizon:
            raise InputError(
                f"steps must be whole episodes of {self.horizon}, got {steps}: "
                f"k episodes take {self.horizon}·k steps"
            )

    def begins(self, t: int) -> bool:
        """Whether an episode begins at step t."""
        return t % self.horizon == 0

    def luck(self, generator: torch.Generator | None) -> Float[Tensor, "*batch"]:
        return torch.rand(self.batch, generator=generator, dtype=torch.float64)

    def observe(
        self, t: int, luck: Float[Tensor, "*batch"], before: tuple[Situation, Tensor] | None
    ) -> Situation:
        if before is None or self.begins(t):
            return Situation(0, choose(self.initial, luck))
        (step, state), action = before
        odds = _row(self.transitions[..., step, :, :, :].flatten(-3, -2), self._pair(state, action))
        return Situation(step + 1, choose(odds, luck))

    def _pair(self, state: Tensor, action: Tensor) -> Tensor:
        return state * self.actions + action

    def reward(
        self, observation: Situation, action: Int[Tensor, "*batch"], luck: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        pairs = self.rewards[..., observation.step, :, :].flatten(-2)
        place = self._pair(observation.state, action).unsqueeze(-1)
        return pairs.gather(-1, place).squeeze(-1)

    def action_values(self, observation: Situation) -> Float[Tensor, "*batch actions"]:
        return at(self.best, observation)

    def history(
        self,
        observations: Sequence[Situation],
        actions: Int[Tensor, "*batch steps"],
        rewards: Float[Tensor, "*batch steps"],
    ) -> EpisodeHistory:
        states = torch.stack([observation.state for observation in observations], dim=-1)
        shape = (-1, self.horizon)
        return EpisodeHistory(*(x.unflatten(-1, shape) for x in (states, actions, rewards)))

    def regret(
        self,
        history: EpisodeHistory,
        plans: Sequence[Float[Tensor, "*batch horizon states actions"]],
    ) -> Float[Tensor, "*batch episodes"]:
        earned = torch.stack([self.value(plan) for plan in plans], dim=-1)
        return self.value().unsqueeze(-1) - earned


def _row(
    rows: Float[Tensor, "*batch choices options"], place: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch options"]:
    """The row at a place of its own in each environment."""
    return torch.take_along_dim(rows, place[..., None, None], dim=-2).squeeze(-2)


def at(
    table: Float[Tensor, "*batch horizon states options"], situation: Situation
) -> Float[Tensor, "*batch options"]:
    """The row of a table that a situation is about."""
    return _row(table[..., situation.step, :, :], situation.state)


def dynamic_programming(
    rewards: Float[Tensor, "*batch horizon states actions"],
    transitions: Float[Tensor, "*batch horizon states actions states"],
    plan: Float[Tensor, "*batch horizon states actions"] | None = None,
    most: float | None = None,
) -> Float[Tensor, "*batch horizon states actions"]:
    """Action values backwards: Q_h = R_h + P_h V_{h+1}, at most `most`, with V_{H+1} = 0.

    V is the value of the best action, or the average under a plan.
    """
    value = torch.zeros_like(rewards[..., 0, :, 0])
    found = []
    for h in reversed(range(rewards.shape[-3])):
        later = transitions[..., h, :, :, :] @ value.unsqueeze(-2).unsqueeze(-1)
        q = rewards[..., h, :, :] + later.squeeze(-1)
        q = q if most is None else q.clamp_max(most)
        value = q.amax(dim=-1) if plan is None else (plan[..., h, :, :] * q).sum(dim=-1)
        found.append(q)
    return torch.stack(found[::-1], dim=-3)
