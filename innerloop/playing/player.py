"""A transformer as a policy, which plays a game token by token with a cache of earlier tokens.

    rollout(TransformerPolicy.from_built(built), environment, steps)

To compute the probabilities of actions, the policy runs the tokens of the observation. `update`
then runs the tokens of the action and its reward. Computing probabilities does not change the
state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.certification.building import BuiltTransformer
from innerloop.constructions.acting import ActingConstruction
from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError, OutOfRangeError
from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.transformer import Cache, Transformer


class _PendingObservation:
    """The last observation for which log odds were computed, with the stream and cache after it.

    With it, `update` does not have to run the observation again. It is also the only place that
    stores the noise of the observation.
    """

    observation: Any = None
    stream: Tensor
    cache: Cache


@dataclass(frozen=True, eq=False)
class PlayState:
    """The state of a game: its number of steps, the cache of their tokens, and zeros for noise."""

    t: int
    cache: Cache
    zero_noise: Float[Tensor, "*batch normals"]
    pending: _PendingObservation = field(default_factory=_PendingObservation, repr=False)


class TransformerPolicy(Policy[Environment, PlayState]):
    """The policy of a transformer with the registers of a construction that acts.

    The weights may be those of the construction or others, such as trained ones.
    """

    source: ClassVar[str] = "the construction's"

    construction: ActingConstruction[Any, Any]
    transformer: Transformer

    def __post_init__(self) -> None:
        if self.transformer.layout != self.construction.layout:
            raise InputError(
                f"the transformer has other registers than {self.name}: "
                "pass construction and transformer of the same build"
            )

    @classmethod
    def from_built(cls, built: BuiltTransformer) -> TransformerPolicy:
        """Return the policy of a transformer from `build` or `verify`."""
        if not isinstance(built.construction, ActingConstruction):
            name = built.construction.name
            raise InputError(f"expected a construction that chooses actions, got {name}")
        return cls(construction=built.construction, transformer=built.transformer)

    @property
    def name(self) -> str:
        return self.construction.name

    def count_normals(self, environment: Environment) -> int:
        return self.construction.policy.count_normals(environment)

    def check_environment(self, environment: Environment) -> None:
        self.construction.accept_environment(environment)

    def init_state(self, environment: Environment) -> PlayState:
        self.check_environment(environment)
        zero_noise = environment.reference_tensor.new_zeros(
            *environment.batch, self.count_normals(environment)
        )
        return PlayState(0, self.transformer.new_cache(), zero_noise)

    def probabilities(
        self, state: PlayState, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self._log_odds(state, observation, noise).softmax(dim=-1)

    def log_probabilities(
        self, state: PlayState, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self._log_odds(state, observation, noise).log_softmax(dim=-1)

    def plan(
        self, state: PlayState, environment: TabularMDP, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch horizon states actions"]:
        """Return the probabilities of actions in all situations; these share the game's cache."""
        self._check_length(state)
        sizes = (environment.horizon, environment.states)
        here = torch.zeros(
            environment.batch, dtype=torch.long, device=environment.reference_tensor.device
        )
        situations = [Situation(h, here + s) for h in range(sizes[0]) for s in range(sizes[1])]
        tokens = [self.construction.encode_observation(state.t, each, noise) for each in situations]
        cache = state.cache.repeat(len(tokens))
        stream, _ = self.transformer.extend(cache, torch.stack(tokens))
        odds = self.construction.log_odds(stream[..., -1, :]).softmax(dim=-1)
        return odds.movedim(0, -2).unflatten(-2, sizes)

    def _log_odds(self, state: PlayState, observation: Any, noise: Tensor) -> Tensor:
        pending = self._run_observation(state, observation, noise)
        return self.construction.log_odds(pending.stream[..., -1, :])

    def update(
        self,
        state: PlayState,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> PlayState:
        pending = state.pending
        if not _is_same_observation(pending.observation, observation):
            pending = self._run_observation(state, observation, state.zero_noise)
        tokens = self.construction.encode_action(state.t, observation, action, reward)
        _, cache = self.transformer.extend(pending.cache, tokens)
        return replace(state, t=state.t + 1, cache=cache, pending=_PendingObservation())

    def _run_observation(
        self, state: PlayState, observation: Any, noise: Tensor
    ) -> _PendingObservation:
        """Run the tokens of an observation, and store the result in the state."""
        self._check_length(state)
        tokens = self.construction.encode_observation(state.t, observation, noise)
        pending = state.pending
        pending.stream, pending.cache = self.transformer.extend(state.cache, tokens)
        pending.observation = observation
        return pending

    def _check_length(self, state: PlayState) -> None:
        limit = self.construction.max_game_steps
        if limit is not None and state.t >= limit:
            raise OutOfRangeError(
                f"{self.name} was built for games of up to {limit} steps, got a longer one: "
                "build it for longer games"
            )

    of = RenamedMethod("from_built")


def _is_same_observation(first: Any, second: Any) -> bool:
    """Return whether two observations (NamedTuples of tensors and numbers) are equal."""
    if first is second or type(first) is not type(second):
        return first is second
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b
        for a, b in zip(first, second, strict=True)
    )
