"""Every action with the same odds, whatever happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment

Odds = Float[Tensor, "*batch actions"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Uniform(Policy[Environment, Odds]):
    """The baseline that learns nothing; its state is the odds."""

    source: ClassVar[str] = "the baseline of every regret"

    def start(self, environment: Environment) -> Odds:
        shape = (*environment.batch, environment.actions)
        return environment.like.new_full(shape, 1 / environment.actions)

    def probabilities(
        self, state: Odds, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Odds:
        return state

    def update(
        self,
        state: Odds,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Odds:
        return state
