"""Stochastic linear bandits: an action a earns ⟨a, w⟩ + N(0, σ²).

Actions are uniform on a cube inside the ball of radius B; each environment has one set of them, or
a new set at every step. Weights w are N(0, I/d), uniform on [0, 1]ᵈ, or set by the user. The paper
uses d = 5, ten actions from [−1, 1]⁵ (B = √5), σ = 1.5, 200 steps and uniform weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.base import Distribution, check_numbers, check_tensors, normal_sampler


@dataclass(frozen=True, eq=False)
class LinearBandit(Bandit):
    """A batch of linear bandits: their action sets, their weights, and σ."""

    features: Float[Tensor, "*batch sets actions d"]
    weights: Float[Tensor, "*batch d"]
    noise: float = 1.0

    def __post_init__(self) -> None:
        tensors = {"features": self.features, "weights": self.weights}
        check_tensors(tensors, "torch.as_tensor takes arrays and lists")
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        fits = self.features.ndim >= 3
        if not fits or self.weights.shape != (*self.batch, self.d):
            raise InputError(
                f"expected features (*batch, sets, actions, d), weights (*batch, d); got {shapes}"
            )
        if 0 in self.features.shape:
            raise InputError(f"need at least one action set, action and feature; got {shapes}")
        check_numbers(tensors)
        if not bool((self.features != 0).any(dim=-1).all()):
            raise InputError(
                "expected features that are not all 0 for each action, got an action with zeros "
                "only: leave it out"
            )
        if not bool(torch.isfinite(self.means).all()):
            raise InputError(
                "expected a finite mean reward ⟨a, w⟩ of each action, got one that is not finite: "
                "scale features or weights down"
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"noise must be finite and at least 0, got {self.noise}")

    @property
    def action_features(self) -> Float[Tensor, "*batch sets actions d"]:
        return self.features

    @property
    def means(self) -> Float[Tensor, "*batch sets actions"]:
        return (self.features @ self.weights.unsqueeze(-2).unsqueeze(-1)).squeeze(-1)

    def draw_luck(self, generator: torch.Generator | None) -> Float[Tensor, "*batch"]:
        return torch.randn(self.batch, generator=generator, dtype=torch.float64)

    def reward(
        self, observation: ActionSet, action: Int[Tensor, "*batch"], luck: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        mean = self.mean_reward(observation.step, action)
        return torch.add(mean, luck.to(mean.dtype), alpha=self.noise)


class LinearBandits(Distribution):
    """A distribution over `LinearBandit`s."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
    problem_type: ClassVar[type[Any]] = LinearBandit
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "arms": 4, "noise": 0.3},
        {"d": 2, "arms": 5, "sets": 12, "noise": 0.5},
        {"d": 4, "arms": 2, "bound": 1.0, "noise": 0.1},
        {"d": 1, "arms": 3, "noise": 0.2},
        {"d": 3, "arms": 1, "sets": 8},
        {"d": 3, "arms": 6, "prior": "uniform", "noise": 1.5},
        {"d": 2, "arms": 3, "prior": torch.tensor([1.0, -0.5]), "noise": 0.0},
    )

    d: int = parameter(5, "features", least=1, most=4096)
    arms: int = parameter(10, "actions in a set", least=1, most=100_000)
    sets: int = parameter(
        1, "number of action sets: 1 for all steps, or one for each step", least=1, most=10_000_000
    )
    noise: float = parameter(1.5, "σ, the standard deviation of the reward's noise", least=0)
    bound: float | None = parameter(
        None, "B, the largest norm of an action; none means √d, the cube [−1, 1]ᵈ", least=1e-150
    )
    prior: Tensor | Literal["normal", "uniform"] = parameter(
        "normal", "w ~ N(0, I/d), w uniform on [0, 1]ᵈ, or the d weights themselves"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, Tensor) and self.prior.shape != (self.d,):
            raise InputError(
                f"prior must be the name of a distribution or {self.d} weights, "
                f"got shape {tuple(self.prior.shape)}"
            )

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> LinearBandit:
        """Draw a batch of environments, in float64 so that every precision sees the same ones."""
        normal = normal_sampler(batch, generator)
        if isinstance(self.prior, Tensor):
            weights = self.prior.expand(*batch, self.d)
        elif self.prior == "normal":
            weights = normal(self.d) / math.sqrt(self.d)
        else:
            weights = torch.rand(*batch, self.d, generator=generator, dtype=torch.float64)
        shape = (*batch, self.sets, self.arms, self.d)
        cube = 2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1
        side = 1.0 if self.bound is None else self.bound / math.sqrt(self.d)
        return LinearBandit(side * cube, weights, self.noise).to(dtype)
