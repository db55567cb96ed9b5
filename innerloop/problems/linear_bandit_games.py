"""Games of linear bandits as they were played: action sets, choices, rewards, and given normals.

A game has n steps. At each of them a set of actions with features is shown, one is chosen, and it
earns ⟨a, w⟩ + N(0, σ²); z ~ N(0, I) is there for policies that sample. The games drawn here choose
uniformly at random, from a fresh action set at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.bandit import BanditHistory
from innerloop.problems.base import Distribution, check_numbers, check_tensors, normals
from innerloop.problems.linear_bandits import LinearBandits


@dataclass(frozen=True, eq=False)
class BanditGame:
    """One batch of games. Policies that sample read `noise`, z of every step."""

    features: Float[Tensor, "*batch n arms d"]
    actions: Int[Tensor, "*batch n"]
    rewards: Float[Tensor, "*batch n"]
    noise: Float[Tensor, "*batch n d"]

    @classmethod
    def of(cls, history: BanditHistory, noise: Tensor | None = None) -> BanditGame:
        """The game that a rollout went through; without `noise`, z is 0."""
        features = history.features
        zeros = torch.zeros_like(features[..., 0, :])
        return cls(features, history.actions, history.rewards, zeros if noise is None else noise)

    def __post_init__(self) -> None:
        numbers = {"features": self.features, "rewards": self.rewards, "noise": self.noise}
        tensors = {**numbers, "actions": self.actions}
        check_tensors(tensors, "torch.as_tensor takes arrays and lists")
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        lead, d = self.features.shape[:-2], self.features.shape[-1:]
        fits = self.features.ndim >= 3 and self.noise.shape == (*lead, *d)
        if not (fits and self.actions.shape == lead and self.rewards.shape == lead):
            raise InputError(
                "expected features (*batch, n, arms, d), actions and rewards (*batch, n), "
                f"noise (*batch, n, d); got {shapes}"
            )
        if 0 in self.features.shape:
            raise InputError(f"need at least one game, step, action and feature; got {shapes}")
        check_numbers(numbers)
        if self.actions.is_floating_point() or self.actions.dtype == torch.bool:
            raise InputError(f"actions must be whole numbers, got {self.actions.dtype}")
        low, high = int(self.actions.min()), int(self.actions.max())
        if low < 0 or high >= self.arms:
            raise InputError(f"actions must be in 0 … {self.arms - 1}, got {low} … {high}")

    @property
    def n(self) -> int:
        """The steps of a game."""
        return self.features.shape[-3]

    @property
    def arms(self) -> int:
        return self.features.shape[-2]

    @property
    def d(self) -> int:
        return self.features.shape[-1]

    @property
    def chosen(self) -> Float[Tensor, "*batch n d"]:
        """φ, the features of the action that was chosen at each step."""
        place = self.actions[..., None, None].expand(*self.actions.shape, 1, self.d)
        return self.features.gather(-2, place).squeeze(-2)

    def to(self, where: torch.dtype | torch.device | str) -> BanditGame:
        """The same games in another precision or on another device."""
        features = self.features.to(where)
        actions = self.actions.to(features.device)
        return BanditGame(features, actions, self.rewards.to(where), self.noise.to(where))


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBanditGames(Distribution):
    """A distribution over `BanditGame`s of `LinearBandits`, played at random."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 2, "n": 7, "arms": 3},
        {"d": 3, "n": 5, "arms": 2, "noise": 0.0},
        {"d": 1, "n": 6, "arms": 4, "bound": 2.0},
        {"d": 4, "n": 3, "arms": 5, "bound": 0.5},
        {"d": 2, "n": 1, "arms": 2},
        {"d": 3, "n": 9, "arms": 1, "noise": 1.0},
        {"d": 2, "n": 20, "arms": 3, "noise": 0.1},
    )

    d: int = parameter(3, "features", least=1, most=4096)
    n: int = parameter(10, "steps of each game", least=1, most=1_000_000)
    arms: int = parameter(3, "actions in a set", least=1, most=100_000)
    noise: float = parameter(0.5, "σ, the standard deviation of the reward's noise", least=0)
    bound: float = parameter(1.0, "B, the largest norm of an action", least=1e-150)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> BanditGame:
        """A batch of games, drawn in float64 so that every precision sees the same ones."""
        normal = normals(batch, generator)
        bandits = LinearBandits(d=self.d, arms=self.arms, sets=self.n, bound=self.bound)
        bandit = bandits.sample(*batch, generator=generator)
        actions = torch.randint(self.arms, (*batch, self.n), generator=generator)
        earned = bandit.means.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        rewards = earned + self.noise * normal(self.n)
        return BanditGame(bandit.features, actions, rewards, normal(self.n, self.d)).to(dtype)
