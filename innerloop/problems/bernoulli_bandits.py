"""Bernoulli bandits: each arm earns 1 with its own probability, otherwise 0.

The probabilities are uniform on [0, 1], which is Beta(1, 1), or set by the user. The features of
the arms are the unit vectors, so that policies for linear bandits can play here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.base import Distribution, check_batch, check_numbers, check_tensors


@dataclass(frozen=True, eq=False)
class BernoulliBandit(Bandit):
    """A batch of Bernoulli bandits; `chances` are the probabilities of reward 1."""

    chances: Float[Tensor, "*batch arms"]

    def __post_init__(self) -> None:
        check_tensors({"chances": self.chances}, "torch.as_tensor takes arrays and lists")
        if self.chances.ndim < 1 or 0 in self.chances.shape:
            shape = tuple(self.chances.shape)
            raise InputError(f"expected chances (*batch, arms) with at least one arm; got {shape}")
        check_numbers({"chances": self.chances})
        if not bool(((self.chances >= 0) & (self.chances <= 1)).all()):
            least, most = float(self.chances.min()), float(self.chances.max())
            raise InputError(f"chances must lie in [0, 1], got {least:.3g} … {most:.3g}")

    @property
    def action_features(self) -> Float[Tensor, "*batch 1 arms arms"]:
        """The unit vectors, one for each arm."""
        arms = self.chances.shape[-1]
        return torch.eye(arms).to(self.chances).expand(*self.chances.shape[:-1], 1, arms, arms)

    @property
    def means(self) -> Float[Tensor, "*batch 1 arms"]:
        return self.chances.unsqueeze(-2)

    def draw_luck(self, generator: torch.Generator | None) -> Float[Tensor, "*batch"]:
        return torch.rand(self.batch, generator=generator, dtype=torch.float64)

    def reward(
        self, observation: ActionSet, action: Int[Tensor, "*batch"], luck: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        return (luck < self.mean_reward(observation.step, action)).to(self.chances)


class BernoulliBandits(Distribution):
    """A distribution over `BernoulliBandit`s."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
    problem_type: ClassVar[type[Any]] = BernoulliBandit
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"arms": 5},
        {"arms": 2},
        {"arms": 1},
        {"arms": 3, "chances": torch.tensor([0.0, 1.0, 0.5])},
    )

    arms: int = parameter(5, "arms", least=1, most=10_000)
    chances: Tensor | None = parameter(None, "the arms' probabilities; none draws them uniformly")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chances is not None:
            if self.chances.shape != (self.arms,):
                raise InputError(
                    f"chances must be {self.arms} numbers, got shape {tuple(self.chances.shape)}"
                )
            BernoulliBandit(self.chances)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> BernoulliBandit:
        """Draw a batch of environments, in float64 so that every precision has the same ones."""
        check_batch(batch)
        if self.chances is None:
            chances = torch.rand(*batch, self.arms, generator=generator, dtype=torch.float64)
        else:
            chances = self.chances.expand(*batch, self.arms)
        return BernoulliBandit(chances).to(dtype)
