"""What policies for a fixed set of arms share: how often each was chosen, and what it earned."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import OutOfRange
from innerloop.policies.base import Policy
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.environment import Environment


class Tally(NamedTuple):
    """The number of times each arm was chosen, and the sum of what it earned."""

    counts: Float[Tensor, "*batch arms"]
    sums: Float[Tensor, "*batch arms"]

    @property
    def means(self) -> Float[Tensor, "*batch arms"]:
        """The average reward of each arm; infinite before the first."""
        return torch.where(self.counts == 0, torch.inf, self.sums / self.counts.clamp_min(1))


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmPolicy(Policy[Bandit, Tally], ABC):
    """A policy whose state is the tally of the arms."""

    plays: ClassVar[type[Environment]] = Bandit

    def accept(self, environment: Environment) -> None:
        super().accept(environment)
        if isinstance(environment, Bandit) and environment.sets > 1:
            raise OutOfRange(
                f"{self.name} needs the same actions at every step, got {environment.sets} sets"
            )

    def start(self, environment: Bandit) -> Tally:
        zeros = environment.like.new_zeros(*environment.batch, environment.actions)
        return Tally(zeros, zeros)

    def update(
        self,
        state: Tally,
        observation: ActionSet,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Tally:
        place, earned = action.unsqueeze(-1), reward.unsqueeze(-1)
        return Tally(
            state.counts.scatter_add(-1, place, torch.ones_like(earned)),
            state.sums.scatter_add(-1, place, earned),
        )
