"""Base class of recipes for bandits with a fixed set of actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.environment import Environment
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.recipes.decisions import DecisionRecipe, Steps


class BanditRecipe(DecisionRecipe, ABC):
    """A network that plays bandits with a fixed set of actions."""

    shows_features: ClassVar[bool]
    """Whether tokens contain the features of all actions, which is not needed for unit vectors."""

    arms: int = parameter(10, "actions", least=2, most=1000)

    @property
    @abstractmethod
    def features(self) -> int:
        """The number of features of an action."""

    @property
    def actions(self) -> int:
        return self.arms

    @property
    def observation_size(self) -> int:
        return self.arms * self.features if self.shows_features else 0

    def show(self, observation: ActionSet) -> Float[Tensor, "*batch numbers"]:
        return observation.features.flatten(-2)[..., : self.observation_size]

    def describe_actions(
        self, observations: Float[Tensor, "*batch numbers"], actions: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch described"]:
        """Encode chosen actions by their features."""
        if not self.shows_features:
            return torch.nn.functional.one_hot(actions, self.arms).to(observations)
        place = actions[..., None, None].expand(*actions.shape, 1, self.features)
        return observations.unflatten(-1, (self.arms, self.features)).gather(-2, place).squeeze(-2)

    def read_problem(self, problem: BanditGameProblem) -> Steps:
        self._check_sizes(problem.arms, problem.d)
        numbers = problem.features.flatten(-2)[..., : self.observation_size]
        return Steps(numbers, problem.actions, problem.rewards)

    def check_environment(self, environment: Environment) -> None:
        if not isinstance(environment, Bandit):
            raise OutOfRangeError(
                f"{self.name} expects bandits to play, got {type(environment).__name__}"
            )
        self._check_sizes(environment.actions, environment.d)

    def _check_sizes(self, arms: int, features: int) -> None:
        if (arms, features) != (self.arms, self.features):
            raise OutOfRangeError(
                f"{self.name} was trained on {self.arms} actions of {self.features} features, "
                f"got {arms} of {features}: play such games, or train it on these"
            )
