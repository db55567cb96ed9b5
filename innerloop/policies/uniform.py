"""The uniform policy: every action has the same probability, independent of the history."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment

Probabilities = Float[Tensor, "*batch actions"]


class UniformPolicy(Policy[Environment, Probabilities]):
    """A baseline that does not learn; its state is the probabilities."""

    source: ClassVar[str] = "the baseline with which regrets are compared"

    def init_state(self, environment: Environment) -> Probabilities:
        shape = (*environment.batch, environment.actions)
        return environment.reference_tensor.new_full(shape, 1 / environment.actions)

    def probabilities(
        self, state: Probabilities, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Probabilities:
        return state

    def update(
        self,
        state: Probabilities,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Probabilities:
        return state
