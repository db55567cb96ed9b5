"""Play a policy in a batch of environments, with all that is random drawn beforehand.

There are three streams of random numbers, each with a generator of its own: the lots that choose
among a policy's odds, the environments' luck, and the normals of policies that sample. Two policies
that choose equally therefore see the same, and the first steps of a long game are a short game.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment, check_probabilities, choose
from innerloop.problems.mdp import TabularMDP


@dataclass(frozen=True, eq=False)
class Draws:
    """All that is random in a game. The steps come first: what a step needs is one entry."""

    lots: Float[Tensor, ...]
    luck: Float[Tensor, ...]
    noise: Float[Tensor, "... normals"]

    @classmethod
    def of(
        cls,
        policy: Policy[Any, Any],
        environment: Environment,
        steps: int,
        generator: torch.Generator | int | None = None,
    ) -> Draws:
        """Drawn step by step and in float64: more steps only add, every precision sees the same."""
        policy.accept(environment)
        environment.check_steps(steps)
        seeds = torch.randint(2**62, (3,), generator=_generator(generator)).tolist()
        lots, luck, noise = (torch.Generator().manual_seed(seed) for seed in seeds)
        batch, like = environment.batch, environment.like
        width = policy.normals(environment)

        def drawn(one: Callable[[], Tensor]) -> Tensor:
            return torch.stack([one() for _ in range(steps)]).to(like.device)

        return cls(
            drawn(lambda: torch.rand(batch, generator=lots, dtype=torch.float64)),
            drawn(lambda: environment.luck(luck)),
            drawn(lambda: torch.randn(*batch, width, generator=noise, dtype=torch.float64)).to(
                like
            ),
        )

    def at(self, index: int | slice) -> Draws:
        """The draws of some of the environments, by the first dimension of the batch."""
        return Draws(self.lots[:, index], self.luck[:, index], self.noise[:, index])


class Rollout(NamedTuple):
    """What happened. The regret is that of each step, or of each episode of a decision process."""

    history: Any
    probabilities: Float[Tensor, "*batch steps actions"]
    regret: Float[Tensor, "*batch games"]


def rollout(
    policy: Policy[Any, Any],
    environment: Environment,
    steps: int,
    generator: torch.Generator | int | None = None,
) -> Rollout:
    """Play `steps` steps in every environment of a batch; a seed may stand for the generator."""
    return play(policy, environment, Draws.of(policy, environment, steps, generator))


def play(policy: Policy[Any, Any], environment: Environment, draws: Draws) -> Rollout:
    """Play the game that the draws decide."""
    state = policy.start(environment)
    before = None
    seen, odds, actions, rewards, plans = [], [], [], [], []
    for t, (lot, luck, noise) in enumerate(zip(draws.lots, draws.luck, draws.noise, strict=True)):
        observation = environment.observe(t, luck, before)
        if isinstance(environment, TabularMDP) and environment.begins(t):
            plans.append(policy.plan(state, environment, noise))
        probabilities = policy.probabilities(state, observation, noise)
        action = choose(probabilities, lot)
        reward = environment.reward(observation, action, luck)
        state = policy.update(state, observation, action, reward)
        before = (observation, action)
        seen.append(observation)
        odds.append(probabilities)
        actions.append(action)
        rewards.append(reward)
    told = torch.stack(odds).movedim(0, -2)
    _check_odds(policy, environment, told)
    chosen, earned = (torch.stack(part).movedim(0, -1) for part in (actions, rewards))
    history = environment.history(seen, chosen, earned)
    return Rollout(history, told, environment.regret(history, plans))


def _generator(given: torch.Generator | int | None) -> torch.Generator | None:
    """A generator, or the one that a seed stands for."""
    if given is None or isinstance(given, torch.Generator):
        return given
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        raise InputError(f"generator must be a torch.Generator or a seed from 0, got {given!r}")
    return torch.Generator().manual_seed(given)


def _check_odds(policy: Policy[Any, Any], environment: Environment, odds: Tensor) -> None:
    """Refuse a game whose odds were none. Once at the end: a check at every step costs as much as
    a step."""
    if odds.shape[-1] != environment.actions:
        raise InputError(
            f"{policy.name} gave odds for {odds.shape[-1]} actions, there are {environment.actions}"
        )
    check_probabilities(f"the odds of {policy.name}", odds)
