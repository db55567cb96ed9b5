"""A transformer as a policy: it plays a game token by token, on what it kept of the tokens before.

    rollout(TransformerPolicy.of(built), environment, steps)

Asked for its odds, it runs the tokens of the observation; told what was chosen and earned, it goes
on from those and runs the tokens of that. What was only asked leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.certificate import Built
from innerloop.errors import InputError, OutOfRange
from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.transformer import Cache, Transformer


class _Asked:
    """The last observation that odds were asked for, and how the transformer went on with it.

    A note beside a state, not a part of it: with or without it the answers are the same, but that
    the random numbers which came with the observation are known to it alone.
    """

    observation: Any = None
    stream: Tensor
    cache: Cache


@dataclass(frozen=True, eq=False)
class Playing:
    """A game so far: its steps, what the transformer kept of their tokens, and zeros for noise."""

    t: int
    cache: Cache
    silence: Float[Tensor, "*batch normals"]
    asked: _Asked = field(default_factory=_Asked, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class TransformerPolicy(Policy[Environment, Playing]):
    """Plays a construction that acts, with its own weights or with any of the same registers."""

    source: ClassVar[str] = "the construction's"

    construction: ActingConstruction
    transformer: Transformer

    def __post_init__(self) -> None:
        if self.transformer.layout != self.construction.layout:
            raise InputError(
                f"the transformer has other registers than {self.name}: "
                "give construction and transformer of one build"
            )

    @classmethod
    def of(cls, built: Built) -> TransformerPolicy:
        """The policy that a transformer plays, as `build` made it or `verify` read it."""
        if not isinstance(built.construction, ActingConstruction):
            name = built.construction.name
            raise InputError(f"only a construction that acts can play, got {name}")
        return cls(construction=built.construction, transformer=built.transformer)

    @property
    def name(self) -> str:
        return self.construction.name

    def normals(self, environment: Environment) -> int:
        return self.construction.policy.normals(environment)

    def accept(self, environment: Environment) -> None:
        self.construction.admit(environment)

    def start(self, environment: Environment) -> Playing:
        self.accept(environment)
        silence = environment.like.new_zeros(*environment.batch, self.normals(environment))
        return Playing(0, self.transformer.begin(), silence)

    def probabilities(
        self, state: Playing, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self._log_odds(state, observation, noise).softmax(dim=-1)

    def log_probabilities(
        self, state: Playing, observation: Any, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return self._log_odds(state, observation, noise).log_softmax(dim=-1)

    def plan(
        self, state: Playing, environment: TabularMDP, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch horizon states actions"]:
        """As any policy's, with all situations side by side: the past is read once for them."""
        self._check_length(state)
        sizes = (environment.horizon, environment.states)
        here = torch.zeros(environment.batch, dtype=torch.long, device=environment.like.device)
        situations = [Situation(h, here + s) for h in range(sizes[0]) for s in range(sizes[1])]
        tokens = [self.construction.observed(state.t, one, noise) for one in situations]
        cache = state.cache.repeated(len(tokens))
        stream, _ = self.transformer.extend(cache, torch.stack(tokens))
        odds = self.construction.log_odds(stream[..., -1, :]).softmax(dim=-1)
        return odds.movedim(0, -2).unflatten(-2, sizes)

    def _log_odds(self, state: Playing, observation: Any, noise: Tensor) -> Tensor:
        asked = self._ask(state, observation, noise)
        return self.construction.log_odds(asked.stream[..., -1, :])

    def update(
        self,
        state: Playing,
        observation: Any,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Playing:
        asked = state.asked
        if not _same(asked.observation, observation):
            asked = self._ask(state, observation, state.silence)
        tokens = self.construction.acted(state.t, observation, action, reward)
        _, cache = self.transformer.extend(asked.cache, tokens)
        return replace(state, t=state.t + 1, cache=cache, asked=_Asked())

    def _ask(self, state: Playing, observation: Any, noise: Tensor) -> _Asked:
        """Run the tokens of an observation, and note it."""
        self._check_length(state)
        tokens = self.construction.observed(state.t, observation, noise)
        asked = state.asked
        asked.stream, asked.cache = self.transformer.extend(state.cache, tokens)
        asked.observation = observation
        return asked

    def _check_length(self, state: Playing) -> None:
        longest = self.construction.longest
        if longest is not None and state.t >= longest:
            raise OutOfRange(
                f"{self.name} was built for games of up to {longest} steps, got one more: "
                "build it for longer games"
            )


def _same(one: Any, other: Any) -> bool:
    """Whether two observations (NamedTuples of tensors and numbers) show the same."""
    if one is other or type(one) is not type(other):
        return one is other
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b
        for a, b in zip(one, other, strict=True)
    )
