"""Recorded games of linear bandits: action sets, chosen actions, rewards, and normal noise.

A game has n steps. Each step offers a set of actions with features; one is chosen and earns
⟨a, w⟩ + N(0, σ²). The noise z ~ N(0, I) is for policies that sample. In the games drawn here, the
actions are uniformly random, from a new action set at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.deprecation import RenamedMethod
from innerloop.parameters import parameter
from innerloop.problems.bandit import BanditHistory
from innerloop.problems.base import Distribution, check_indices, normal_sampler
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class BanditGameProblem(Problem):
    """A batch of recorded games; `noise` is the z of every step, for policies that sample."""

    contents: ClassVar[str] = "game, step, action and feature"
    of = RenamedMethod("from_history")

    features: Float[Tensor, "*batch n arms d"]
    actions: Int[Tensor, "*batch n"]
    rewards: Float[Tensor, "*batch n"]
    noise: Float[Tensor, "*batch n d"]

    @classmethod
    def from_history(cls, history: BanditHistory, noise: Tensor | None = None) -> BanditGameProblem:
        """Return the problem of a rollout's history; without `noise`, z is 0."""
        features = history.features
        zeros = torch.zeros_like(features[..., 0, :])
        return cls(features, history.actions, history.rewards, zeros if noise is None else noise)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_indices("actions", self.actions, self.arms)

    @property
    def n(self) -> int:
        """The number of steps of a game."""
        return self.features.shape[-3]

    @property
    def arms(self) -> int:
        return self.features.shape[-2]

    @property
    def d(self) -> int:
        return self.features.shape[-1]

    @property
    def chosen_features(self) -> Float[Tensor, "*batch n d"]:
        """The features φ of the action chosen at each step."""
        place = self.actions[..., None, None].expand(*self.actions.shape, 1, self.d)
        return self.features.gather(-2, place).squeeze(-2)


class LinearBanditGames(Distribution):
    """A distribution over `BanditGameProblem`s: games of `LinearBandits` with random actions."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
    problem_type: ClassVar[type[Any]] = BanditGameProblem
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
    ) -> BanditGameProblem:
        """Draw a batch of games, in float64 so that every precision sees the same ones."""
        normal = normal_sampler(batch, generator)
        bandits = LinearBandits(d=self.d, arms=self.arms, sets=self.n, bound=self.bound)
        bandit = bandits.sample(*batch, generator=generator)
        actions = torch.randint(self.arms, (*batch, self.n), generator=generator)
        means = bandit.means.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        rewards = means + self.noise * normal(self.n)
        return BanditGameProblem(bandit.features, actions, rewards, normal(self.n, self.d)).to(
            dtype
        )
