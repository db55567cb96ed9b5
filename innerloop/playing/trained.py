"""A trained network as a policy, which plays a game step by step with a cache of earlier steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.errors import InputError, OutOfRangeError
from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment
from innerloop.recipes.base import Recipe
from innerloop.recipes.decisions import DecisionRecipe


@dataclass(frozen=True, eq=False)
class GameState:
    """The state of a game: its number of steps, the cache of their tokens, and the last step."""

    t: int = 0
    cache: Any = None
    previous: tuple[Tensor, Tensor, Tensor] | None = None
    pending: list[Any] = field(default_factory=list, repr=False)
    """The last observation for which probabilities were computed, with the output of the network.

    With it, `update` does not have to run the observation again.
    """


class TrainedPolicy(Policy[Environment, GameState]):
    """The policy of a network that was trained to decide."""

    source: ClassVar[str] = "the recipe's"

    recipe: DecisionRecipe
    model: nn.Module

    @classmethod
    def from_run(cls, recipe: Recipe, model: nn.Module) -> TrainedPolicy:
        """Return the policy of a training run; raise `InputError` if it did not train a policy."""
        if not isinstance(recipe, DecisionRecipe):
            raise InputError(f"expected a run that trained a policy, got one of {recipe.name}")
        return cls(recipe=recipe, model=model)

    @property
    def name(self) -> str:
        return f"{self.recipe.name}, trained"

    def check_environment(self, environment: Environment) -> None:
        self.recipe.check_environment(environment)

    def init_state(self, environment: Environment) -> GameState:
        self.check_environment(environment)
        return GameState()

    def probabilities(
        self, state: GameState, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self.log_probabilities(state, observation, noise).exp()

    def log_probabilities(
        self, state: GameState, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        logits, _ = self._run(state, observation)
        return logits.squeeze(-2).to(noise.dtype).log_softmax(dim=-1)

    def update(
        self,
        state: GameState,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> GameState:
        _, cache = self._run(state, observation)
        return GameState(state.t + 1, cache, (self._show(observation), action, reward))

    @torch.no_grad()
    def _run(self, state: GameState, observation: Any) -> tuple[Tensor, Any]:
        if state.pending and state.pending[0] is observation:
            return state.pending[1]
        if state.t >= self.recipe.horizon_steps:
            raise OutOfRangeError(
                f"{self.recipe.name} was trained on games of {self.recipe.horizon_steps} steps, "
                "got a longer one: play fewer steps, or train it with a larger horizon_steps"
            )
        token = self.recipe.encode_step(state.t, self._show(observation), state.previous)
        output = self.model.extend(state.cache, token)  # pyright: ignore[reportCallIssue]
        state.pending[:] = [observation, output]
        return output

    def _show(self, observation: Any) -> Float[Tensor, "batch numbers"]:
        weight = next(self.model.parameters())
        return self.recipe.show(observation).to(weight)
