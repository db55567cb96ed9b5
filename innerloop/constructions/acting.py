"""Base class of constructions that choose actions: games as tokens, and odds read from the stream.

A game repeats observation, action and reward. `encode_observation` makes the tokens of what an
environment shows, `encode_action` those of the action taken and its reward; after all blocks the
last token of an observation holds the odds of the actions. Every block is causal: later tokens
change nothing before them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Generic

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.algorithms.base import P, S
from innerloop.constructions.base import Construction
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment


class ActingConstruction(Construction[P, S], ABC, Generic[P, S]):
    """A causal construction that chooses among actions at every step of a game."""

    @cached_property
    def policy(self) -> Policy[Any, Any]:
        """The reference policy that the transformer is meant to imitate."""
        raise TypeError(f"{self.name} must define its policy")

    @property
    def max_game_steps(self) -> int | None:
        """The largest number of steps in a game; None if there is no limit."""
        return None

    def environments(self) -> Distribution:
        """Return a distribution over environments of the built sizes."""
        raise TypeError(f"{self.name} must define its environments")

    def accept_environment(self, environment: Environment) -> None:
        """Raise `OutOfRangeError` for an environment that the construction was not built for."""
        self.policy.check_environment(environment)

    @abstractmethod
    def encode_observation(
        self, t: int, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch tokens width"]:
        """Return the tokens of an observation at step t of the game, counted from 0."""

    @abstractmethod
    def encode_action(
        self,
        t: int,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch tokens width"]:
        """Return the tokens of the action taken at step t and its reward."""

    @abstractmethod
    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        """Read the log odds of the actions from an observation's last token after all blocks."""
