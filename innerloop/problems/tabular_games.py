"""Recorded games in decision processes: states, actions and rewards, as data for planning.

The decision processes are drawn by `TabularMDPs`, and all actions are uniformly random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, check_indices
from innerloop.problems.mdp import Situation
from innerloop.problems.problem import Problem
from innerloop.problems.tabular_mdps import TabularMDPs


@dataclass(frozen=True, eq=False)
class TabularGameProblem(Problem):
    """A batch of games in episodes, and the numbers of states and actions."""

    contents: ClassVar[str] = "game, episode and step"

    states: Int[Tensor, "*batch episodes horizon"]
    actions: Int[Tensor, "*batch episodes horizon"]
    rewards: Float[Tensor, "*batch episodes horizon"]
    sizes: tuple[int, int]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_indices("states", self.states, self.sizes[0])
        check_indices("actions", self.actions, self.sizes[1])
        if not bool(((self.rewards >= 0) & (self.rewards <= 1)).all()):
            raise InputError(
                "rewards must lie in [0, 1], got others: divide them by the largest reward"
            )

    @property
    def episodes(self) -> int:
        return self.rewards.shape[-2]

    @property
    def horizon(self) -> int:
        return self.rewards.shape[-1]


class TabularGames(Distribution):
    """A distribution over `TabularGameProblem`s."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
    problem_type: ClassVar[type[Any]] = TabularGameProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"arms": 2},
        {"arms": 3, "episodes": 4},
        {"arms": 1, "episodes": 5},
        {"arms": 5, "episodes": 2},
        {"arms": 4},
    )

    states: int = parameter(3, "states S", least=1, most=1000)
    arms: int = parameter(2, "actions A", least=1, most=1000)
    horizon: int = parameter(3, "steps of an episode H", least=1, most=10_000)
    episodes: int = parameter(6, "episodes", least=1, most=10_000)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> TabularGameProblem:
        """Draw a batch of games."""
        worlds = TabularMDPs(states=self.states, arms=self.arms, horizon=self.horizon)
        world = worlds.sample(*batch, generator=generator)
        previous, observations, actions, rewards = None, [], [], []
        for t in range(self.episodes * self.horizon):
            luck = world.draw_luck(generator)
            observation: Situation = world.observe(t, luck, previous)
            action = torch.randint(self.arms, world.batch, generator=generator)
            previous = (observation, action)
            observations.append(observation)
            actions.append(action)
            rewards.append(world.reward(observation, action, luck))
        stacked = (torch.stack(part, dim=-1) for part in (actions, rewards))
        history = world.build_history(observations, *stacked)
        return TabularGameProblem(*history, (self.states, self.arms)).to(dtype)
