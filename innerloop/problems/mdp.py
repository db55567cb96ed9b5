"""Tabular Markov decision processes in episodes of H steps, their values and their regret.

In state s at step h, action a earns R_h(s, a) and moves to s' with probability P_h(s' | s, a). The
regret of an episode is V* − V^π at its first step, both by dynamic programming, where π is the
policy's plan at the start of the episode.
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
from innerloop.problems.environment import Environment, check_probabilities, sample_inverse_cdf


class Situation(NamedTuple):
    """An observation: the step of the episode, counted from 0, and the state."""

    step: int
    state: Int[Tensor, "*batch"]


class EpisodeHistory(NamedTuple):
    """The states, actions and rewards of all episodes of a game."""

    states: Int[Tensor, "*batch episodes horizon"]
    actions: Int[Tensor, "*batch episodes horizon"]
    rewards: Float[Tensor, "*batch episodes horizon"]

    def truncate(self, episodes: int) -> EpisodeHistory:
        """Return the history of the first `episodes` episodes."""
        return EpisodeHistory(*(part[..., :episodes, :] for part in self))


@dataclass(frozen=True, eq=False)
class TabularMDP(Environment):
    """A batch of tabular decision processes, with deterministic rewards in [0, 1]."""

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
    def reference_tensor(self) -> Tensor:
        return self.rewards

    @cached_property
    def optimal_values(self) -> Float[Tensor, "*batch horizon states actions"]:
        """The action values Q* of the optimal plan."""
        return dynamic_programming(self.rewards, self.transitions)

    def value(
        self, plan: Float[Tensor, "*batch horizon states actions"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """Return the expected return of an episode under a plan, by default the optimal one."""
        if plan is None:
            first = self.optimal_values[..., 0, :, :].amax(dim=-1)
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

    def starts_episode(self, t: int) -> bool:
        """Return whether an episode begins at step t."""
        return t % self.horizon == 0

    def draw_luck(self, generator: torch.Generator | None) -> Float[Tensor, "*batch"]:
        return torch.rand(self.batch, generator=generator, dtype=torch.float64)

    def observe(
        self, t: int, luck: Float[Tensor, "*batch"], previous: tuple[Situation, Tensor] | None
    ) -> Situation:
        if previous is None or self.starts_episode(t):
            return Situation(0, sample_inverse_cdf(self.initial, luck))
        (step, state), action = previous
        probabilities = _gather_row(
            self.transitions[..., step, :, :, :].flatten(-3, -2), self._pair_index(state, action)
        )
        return Situation(step + 1, sample_inverse_cdf(probabilities, luck))

    def _pair_index(self, state: Tensor, action: Tensor) -> Tensor:
        return state * self.actions + action

    def reward(
        self, observation: Situation, action: Int[Tensor, "*batch"], luck: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        pairs = self.rewards[..., observation.step, :, :].flatten(-2)
        place = self._pair_index(observation.state, action).unsqueeze(-1)
        return pairs.gather(-1, place).squeeze(-1)

    def action_values(self, observation: Situation) -> Float[Tensor, "*batch actions"]:
        return select_row(self.optimal_values, observation)

    def build_history(
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
        """Return the regret of each episode, not accumulated: V* minus the value of its plan."""
        values = torch.stack([self.value(plan) for plan in plans], dim=-1)
        return self.value().unsqueeze(-1) - values


def _gather_row(
    rows: Float[Tensor, "*batch choices options"], place: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch options"]:
    """Return one row per environment, at the index of the environment."""
    return torch.take_along_dim(rows, place[..., None, None], dim=-2).squeeze(-2)


def select_row(
    table: Float[Tensor, "*batch horizon states options"], situation: Situation
) -> Float[Tensor, "*batch options"]:
    """Return the row of a table for the step and state of an observation."""
    return _gather_row(table[..., situation.step, :, :], situation.state)


def dynamic_programming(
    rewards: Float[Tensor, "*batch horizon states actions"],
    transitions: Float[Tensor, "*batch horizon states actions states"],
    plan: Float[Tensor, "*batch horizon states actions"] | None = None,
    most: float | None = None,
) -> Float[Tensor, "*batch horizon states actions"]:
    """Return action values by backward induction.

    Q_h = min(R_h + P_h V_{h+1}, `most`) with V_{H+1} = 0. V is the value of the best action, or the
    average value under a plan.
    """
    value = torch.zeros_like(rewards[..., 0, :, 0])
    values = []
    for h in reversed(range(rewards.shape[-3])):
        later = transitions[..., h, :, :, :] @ value.unsqueeze(-2).unsqueeze(-1)
        q = rewards[..., h, :, :] + later.squeeze(-1)
        q = q if most is None else q.clamp_max(most)
        value = q.amax(dim=-1) if plan is None else (plan[..., h, :, :] * q).sum(dim=-1)
        values.append(q)
    return torch.stack(values[::-1], dim=-3)
