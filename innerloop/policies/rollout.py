"""Play a policy in a batch of environments, with all random numbers drawn beforehand.

There are three streams of random numbers, each with its own generator: uniform numbers (`lots`)
that sample actions from the policy's probabilities, the randomness of the environment (`luck`), and
normals for policies that sample. Two policies with equal actions therefore get equal observations,
and a longer game with the same seed begins like a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.limits import check_seed
from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment, check_probabilities, sample_inverse_cdf
from innerloop.problems.mdp import TabularMDP


@dataclass(frozen=True, eq=False)
class Draws:
    """All random numbers of a game; the first dimension is the step.

    `lots` are used to sample actions, `luck` by the environment, and `noise` contains the normals
    that the policy gets.
    """

    lots: Float[Tensor, ...]
    luck: Float[Tensor, ...]
    noise: Float[Tensor, "... normals"]

    @classmethod
    def sample(
        cls,
        policy: Policy[Any, Any],
        environment: Environment,
        steps: int,
        generator: torch.Generator | int | None = None,
    ) -> Draws:
        """Draw the random numbers of a game, step by step and in float64.

        With the same seed, a longer game begins with the numbers of a shorter one, and every
        precision gets the same numbers.
        """
        policy.check_environment(environment)
        environment.check_steps(steps)
        seeds = torch.randint(2**62, (3,), generator=_resolve_generator(generator)).tolist()
        lots, luck, noise = (torch.Generator().manual_seed(seed) for seed in seeds)
        batch, like = environment.batch, environment.reference_tensor
        width = policy.count_normals(environment)

        def repeat(draw: Callable[[], Tensor]) -> Tensor:
            return torch.stack([draw() for _ in range(steps)]).to(like.device)

        return cls(
            repeat(lambda: torch.rand(batch, generator=lots, dtype=torch.float64)),
            repeat(lambda: environment.draw_luck(luck)),
            repeat(lambda: torch.randn(*batch, width, generator=noise, dtype=torch.float64)).to(
                like
            ),
        )

    def select(self, index: int | slice) -> Draws:
        """Select the draws of some environments, by the first dimension of the batch."""
        return Draws(self.lots[:, index], self.luck[:, index], self.noise[:, index])


class Rollout(NamedTuple):
    """The outcome of a game; the regret is per step, or per episode of a decision process."""

    history: Any
    probabilities: Float[Tensor, "*batch steps actions"]
    regret: Float[Tensor, "*batch games"]


def rollout(
    policy: Policy[Any, Any],
    environment: Environment,
    steps: int,
    generator: torch.Generator | int | None = None,
) -> Rollout:
    """Play a policy in every environment of a batch.

    All random numbers are drawn beforehand, separately for actions, environment and policy.
    Policies with equal actions therefore see equal observations.

    Args:
        policy: The policy that chooses the actions.
        environment: A batch of environments, such as `LinearBandits(...).sample(200)`.
        steps: Number of steps.
        generator: The random number generator, or a seed.

    Returns:
        The history of the game, the probability of every action, and the regret of each step.

    Example:
        >>> import innerloop
        >>> environment = innerloop.LinearBandits().sample(3)
        >>> result = innerloop.rollout(innerloop.LinUCBPolicy(), environment, 10, 0)
        >>> result.regret.shape
        torch.Size([3, 10])
    """
    return play(policy, environment, Draws.sample(policy, environment, steps, generator))


def play(policy: Policy[Any, Any], environment: Environment, draws: Draws) -> Rollout:
    """Play a game with the random numbers of `draws`."""
    state = policy.init_state(environment)
    previous = None
    observations, probabilities, actions, rewards, plans = [], [], [], [], []
    for t, (lot, luck, noise) in enumerate(zip(draws.lots, draws.luck, draws.noise, strict=True)):
        observation = environment.observe(t, luck, previous)
        if isinstance(environment, TabularMDP) and environment.starts_episode(t):
            plans.append(policy.plan(state, environment, noise))
        current = policy.probabilities(state, observation, noise)
        action = sample_inverse_cdf(current, lot)
        reward = environment.reward(observation, action, luck)
        state = policy.update(state, observation, action, reward)
        previous = (observation, action)
        observations.append(observation)
        probabilities.append(current)
        actions.append(action)
        rewards.append(reward)
    stacked = torch.stack(probabilities).movedim(0, -2)
    chosen, earned = (torch.stack(part).movedim(0, -1) for part in (actions, rewards))
    _check_rewards(environment, earned)
    _check_policy_output(policy, environment, stacked)
    history = environment.build_history(observations, chosen, earned)
    return Rollout(history, stacked, environment.regret(history, plans))


def _resolve_generator(source: torch.Generator | int | None) -> torch.Generator | None:
    """Return a generator unchanged, and make one from a seed."""
    if source is None or isinstance(source, torch.Generator):
        return source
    return torch.Generator().manual_seed(check_seed(source))


def _check_rewards(environment: Environment, rewards: Float[Tensor, "*batch steps"]) -> None:
    """Check that all rewards are finite, else raise `InputError`.

    This runs before the check of the policy, whose probabilities also become invalid after such a
    reward.
    """
    bad = ~torch.isfinite(rewards)
    if bool(bad.any()):
        t = int(bad.reshape(-1, bad.shape[-1]).any(dim=0).nonzero()[0]) + 1
        raise InputError(
            f"expected finite rewards, got one that is not finite from "
            f"{type(environment).__name__} at step {t}: correct its rewards"
        )


def _check_policy_output(
    policy: Policy[Any, Any], environment: Environment, probabilities: Tensor
) -> None:
    """Check that the policy returned valid probabilities, else raise `InputError`.

    This runs once at the end of a game, because a check at every step costs as much as a step.
    """
    actions = probabilities.shape[-1]
    if actions != environment.actions:
        raise InputError(
            f"expected probabilities of {environment.actions} actions, as the environment has, "
            f"got {actions} from {policy.name}"
        )
    check_probabilities(f"the probabilities of {policy.name}", probabilities)
