"""What constructions that act share: a game as tokens, and the odds that the stream holds.

A game is observation, action and reward, again and again. `observed` makes the tokens of what an
environment shows, `acted` those of what was chosen and earned; after all blocks the last token of
`observed` holds the odds of the actions. Every block is causal: tokens that come later change
nothing before them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment


@dataclass(frozen=True, kw_only=True, eq=False)
class ActingConstruction(Construction, ABC):
    """A causal construction that chooses among actions at every step of a game."""

    @cached_property
    def policy(self) -> Policy[Any, Any]:
        """The reference policy that it is meant to play like."""
        raise TypeError(f"{self.name} must define its policy")

    @property
    def longest(self) -> int | None:
        """The most steps that a game may have; none if there is no limit."""
        return None

    def worlds(self) -> Distribution:
        """Environments of the sizes that it was built for."""
        raise TypeError(f"{self.name} must say which worlds it plays in")

    def admit(self, environment: Environment) -> None:
        """Raise `OutOfRange` for an environment that it was not built for."""
        self.policy.accept(environment)

    @abstractmethod
    def observed(
        self, t: int, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch tokens width"]:
        """The tokens of an observation at step t of the game, counted from 0."""

    @abstractmethod
    def acted(
        self,
        t: int,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch tokens width"]:
        """The tokens of what was chosen and earned at step t."""

    @abstractmethod
    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        """The logarithm of the odds, from the last token of an observation after all blocks."""
