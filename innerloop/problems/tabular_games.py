"""Games in decision processes: what was seen, done and earned, for planning from it.

A decision process is drawn as `TabularMDPs` draws it, and every action is uniformly random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, check_numbers, check_tensors
from innerloop.problems.mdp import Situation
from innerloop.problems.tabular_mdps import TabularMDPs


@dataclass(frozen=True, eq=False)
class TabularGame:
    """A batch of games, episode by episode, and how many states and actions there are."""

    states: Int[Tensor, "*batch episodes horizon"]
    actions: Int[Tensor, "*batch episodes horizon"]
    rewards: Float[Tensor, "*batch episodes horizon"]
    sizes: tuple[int, int]

    def __post_init__(self) -> None:
        tensors = {"states": self.states, "actions": self.actions, "rewards": self.rewards}
        check_tensors(tensors, "torch.as_tensor takes arrays and lists")
        check_numbers({"rewards": self.rewards})
        shapes = {tuple(part.shape) for part in tensors.values()}
        if len(shapes) > 1 or self.rewards.ndim < 2 or 0 in self.rewards.shape:
            found = ", ".join(map(str, sorted(shapes)))
            raise InputError(f"a game has (*batch, episodes, H) of each, none empty; got {found}")
        for name, size in zip(("states", "actions"), self.sizes, strict=True):
            values = tensors[name]
            if values.is_floating_point() or values.dtype == torch.bool:
                raise InputError(f"{name} must be whole numbers, got {values.dtype}")
            if bool(((values < 0) | (values >= size)).any()):
                least, most = int(values.min()), int(values.max())
                raise InputError(f"{name} must be in 0 … {size - 1}, got {least} … {most}")
        if not bool(((self.rewards >= 0) & (self.rewards <= 1)).all()):
            raise InputError("rewards must lie in [0, 1]: divide them by the largest")

    @property
    def episodes(self) -> int:
        return self.rewards.shape[-2]

    @property
    def horizon(self) -> int:
        return self.rewards.shape[-1]

    def to(self, where: torch.dtype | torch.device | str) -> TabularGame:
        """The same games in another precision or on another device."""
        rewards = self.rewards.to(where)
        states, actions = (part.to(rewards.device) for part in (self.states, self.actions))
        return TabularGame(states, actions, rewards, self.sizes)


@dataclass(frozen=True, kw_only=True, eq=False)
class TabularGames(Distribution):
    """A distribution over `TabularGame`s."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
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
    ) -> TabularGame:
        """A batch of games."""
        worlds = TabularMDPs(states=self.states, arms=self.arms, horizon=self.horizon)
        world = worlds.sample(*batch, generator=generator)
        before, seen, done, earned = None, [], [], []
        for t in range(self.episodes * self.horizon):
            luck = world.luck(generator)
            observation: Situation = world.observe(t, luck, before)
            action = torch.randint(self.arms, world.batch, generator=generator)
            before = (observation, action)
            seen.append(observation)
            done.append(action)
            earned.append(world.reward(observation, action, luck))
        chosen, paid = (torch.stack(part, dim=-1) for part in (done, earned))
        history = world.history(seen, chosen, paid)
        return TabularGame(*history, (self.states, self.arms)).to(dtype)
