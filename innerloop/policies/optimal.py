"""The optimal action, computed from the environment itself: an expert with regret 0."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.policies.base import Policy, greedy_probabilities
from innerloop.problems.environment import Environment


class OptimalPolicy(Policy[Environment, Environment]):
    """The policy with which regret is computed; its state is the environment itself."""

    source: ClassVar[str] = "Yang 2025, third paper, experiments: the expert of pre-training"

    def init_state(self, environment: Environment) -> Environment:
        return environment

    def probabilities(
        self, state: Environment, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return greedy_probabilities(state.action_values(observation))

    def update(
        self,
        state: Environment,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Environment:
        return state
