"""What every policy has: a first state, the odds of each action, and what it learns from a step.

A policy sees an environment through its observations, step by step, and keeps what it needs in its
state, so that a step costs the same however long the history is. Whatever a policy draws at random
it makes from standard normals that it is given: with the same numbers, the odds are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import OutOfRange
from innerloop.parameters import Parameters, parameter
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.registry import name_of

World = TypeVar("World", bound=Environment)
State = TypeVar("State")


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy(Parameters, ABC, Generic[World, State]):
    """A way to choose. Subclasses are frozen dataclasses of their parameters; states are tensors or
    NamedTuples of tensors, and are never changed in place."""

    source: ClassVar[str]
    plays: ClassVar[type[Environment]] = Environment
    """The environments it can be played in."""

    @abstractmethod
    def start(self, environment: World) -> State:
        """The state before the first step."""

    @abstractmethod
    def probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        """The odds of each action."""

    @abstractmethod
    def update(
        self,
        state: State,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> State:
        """The state after a step."""

    def log_probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        """The logarithm of the odds, without underflow where the policy can avoid it."""
        return self.probabilities(state, observation, noise).log()

    def normals(self, environment: World) -> int:
        """How many standard normals it needs at every step."""
        return 0

    def accept(self, environment: Environment) -> None:
        """Raise `OutOfRange` for an environment that it cannot be played in."""
        if not isinstance(environment, self.plays):
            raise OutOfRange(
                f"{self.name} plays in a {self.plays.__name__}, got a {type(environment).__name__}"
            )

    def plan(
        self, state: State, environment: TabularMDP, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch horizon states actions"]:
        """The odds at every step and in every state of an episode that begins now."""
        here = torch.zeros(environment.batch, dtype=torch.long, device=environment.like.device)
        rows = [
            self.probabilities(state, Situation(h, here + s), noise)
            for h in range(environment.horizon)
            for s in range(environment.states)
        ]
        return torch.stack(rows, dim=-2).unflatten(-2, (environment.horizon, environment.states))

    @property
    def name(self) -> str:
        return name_of(type(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftPolicy(Policy[World, State], ABC):
    """A policy that scores the actions: softmax(scores / τ), or the best score if τ is 0."""

    temperature: float = parameter(0.0, "τ of the softmax over scores; 0 takes the best", least=0)

    @abstractmethod
    def scores(self, state: State, observation: Any) -> Float[Tensor, "*batch actions"]:
        """How promising each action is."""

    def probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self.softened(self.scores(state, observation))

    def softened(self, scores: Float[Tensor, "*batch actions"]) -> Float[Tensor, "*batch actions"]:
        """The odds that scores give."""
        if self.temperature == 0:
            return greedy(scores)
        return (scores / self.temperature).softmax(dim=-1)

    def log_probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        scores = self.scores(state, observation)
        if self.temperature == 0:
            return greedy(scores).log()
        return (scores / self.temperature).log_softmax(dim=-1)


def greedy(scores: Float[Tensor, "*batch actions"]) -> Float[Tensor, "*batch actions"]:
    """Even odds for all actions with the best score: softmax(scores / τ) as τ goes to 0."""
    best = (scores == scores.amax(dim=-1, keepdim=True)).to(scores)
    return best / best.sum(dim=-1, keepdim=True)
