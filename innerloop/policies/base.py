"""Base class of policies: initial state, probabilities of the actions, and update after a step.

A policy sees an environment through its observations, step by step, and stores what it needs in its
state. The cost of a step therefore does not depend on the length of the history. All randomness of
a policy comes from the standard normals passed to it: equal normals give equal probabilities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.parameters import Parameters, parameter
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.registry import get_name

Env = TypeVar("Env", bound=Environment)
State = TypeVar("State")


class Policy(Parameters, ABC, Generic[Env, State]):
    """A rule for choosing actions.

    Subclasses are frozen dataclasses of their parameters; states are tensors or NamedTuples of
    tensors, and are never changed in place.
    """

    source: ClassVar[str]
    environment_type: ClassVar[type[Environment]] = Environment
    """The class of environments in which the policy can play."""

    @abstractmethod
    def init_state(self, environment: Env) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        """Return the probability of each action."""

    @abstractmethod
    def update(
        self,
        state: State,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> State:
        """Return the state after a step."""

    def log_probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        """Return the logarithms of the probabilities, where possible without underflow."""
        return self.probabilities(state, observation, noise).log()

    def count_normals(self, environment: Env) -> int:
        """Return the number of standard normals that the policy needs at every step."""
        return 0

    def check_environment(self, environment: Environment) -> None:
        """Raise `OutOfRangeError` for an environment that the policy cannot play in."""
        if not isinstance(environment, self.environment_type):
            raise OutOfRangeError(
                f"{self.name} expects an environment of type {self.environment_type.__name__}, "
                f"got {type(environment).__name__}"
            )

    def plan(
        self, state: State, environment: TabularMDP, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch horizon states actions"]:
        """Return the probabilities at every step and state of an episode that begins now."""
        zeros = torch.zeros(
            environment.batch, dtype=torch.long, device=environment.reference_tensor.device
        )
        rows = [
            self.probabilities(state, Situation(h, zeros + s), noise)
            for h in range(environment.horizon)
            for s in range(environment.states)
        ]
        return torch.stack(rows, dim=-2).unflatten(-2, (environment.horizon, environment.states))

    @property
    def name(self) -> str:
        return get_name(type(self))


class SoftPolicy(Policy[Env, State], ABC):
    """A policy that scores actions.

    Its probabilities are softmax(scores / τ); with τ = 0 it takes the action with the best score.
    """

    temperature: float = parameter(0.0, "τ of the softmax over scores; 0 takes the best", least=0)

    @abstractmethod
    def score_actions(self, state: State, observation: Any) -> Float[Tensor, "*batch actions"]:
        """Return a score of each action; a higher score is more probable."""

    def probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self.scores_to_probabilities(self.score_actions(state, observation))

    def scores_to_probabilities(
        self, scores: Float[Tensor, "*batch actions"]
    ) -> Float[Tensor, "*batch actions"]:
        """Convert scores to probabilities, by softmax or by taking the best score."""
        if self.temperature == 0:
            return greedy_probabilities(scores)
        return (scores / self.temperature).softmax(dim=-1)

    def log_probabilities(
        self, state: State, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        scores = self.score_actions(state, observation)
        if self.temperature == 0:
            return greedy_probabilities(scores).log()
        return (scores / self.temperature).log_softmax(dim=-1)


def greedy_probabilities(
    scores: Float[Tensor, "*batch actions"],
) -> Float[Tensor, "*batch actions"]:
    """Return equal probabilities for all actions with the best score: the softmax for τ → 0."""
    best = (scores == scores.amax(dim=-1, keepdim=True)).to(scores)
    return best / best.sum(dim=-1, keepdim=True)
