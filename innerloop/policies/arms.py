"""Base class of policies for a fixed set of arms, which count choices and rewards per arm."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.policies.base import Policy
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.environment import Environment


class Tally(NamedTuple):
    """The number of choices of each arm, and the sum of its rewards."""

    counts: Float[Tensor, "*batch arms"]
    sums: Float[Tensor, "*batch arms"]

    @property
    def means(self) -> Float[Tensor, "*batch arms"]:
        """The average reward of each arm; it is infinite for an arm that was never chosen."""
        return torch.where(self.counts == 0, torch.inf, self.sums / self.counts.clamp_min(1))


class ArmPolicy(Policy[Bandit, Tally], ABC):
    """A policy whose state is the tally of the arms."""

    environment_type: ClassVar[type[Environment]] = Bandit

    def check_environment(self, environment: Environment) -> None:
        super().check_environment(environment)
        if isinstance(environment, Bandit) and environment.sets > 1:
            raise OutOfRangeError(
                f"{self.name} expects the same actions at every step, "
                f"got {environment.sets} sets of actions"
            )

    def init_state(self, environment: Bandit) -> Tally:
        zeros = environment.reference_tensor.new_zeros(*environment.batch, environment.actions)
        return Tally(zeros, zeros)

    def update(
        self,
        state: Tally,
        observation: ActionSet,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Tally:
        index, amount = action.unsqueeze(-1), reward.unsqueeze(-1)
        return Tally(
            state.counts.scatter_add(-1, index, torch.ones_like(amount)),
            state.sums.scatter_add(-1, index, amount),
        )
