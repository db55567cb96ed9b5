"""Play a policy in a batch of environments, with all random numbers drawn beforehand.

There are three streams of random numbers, each with its own generator: the lots that sample actions
from a policy's probabilities, the environments' luck, and the normals of policies that sample. Two
policies that act alike therefore observe the same, and a long game begins with the short one.
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
    """All random numbers of a game; the first dimension is the step."""

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

        More steps only append, and every precision sees the same numbers.
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
    """Outcome of a game. The regret is per step, or per episode of a decision process."""

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

    All that is random is drawn beforehand, in streams of their own: policies that choose equally
    see the same.

    Args:
        policy: Who acts.
        environment: A batch of environments, such as `LinearBandits(...).sample(200)`.
        steps: Steps to play.
        generator: The source of luck, or a seed for it.

    Returns:
        The game: its history, the odds of every action, and the regret of each step.
    """
    return play(policy, environment, Draws.sample(policy, environment, steps, generator))


def play(policy: Policy[Any, Any], environment: Environment, draws: Draws) -> Rollout:
    """Play a game with the given random numbers."""
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
    """Return a generator as it is, and make one from a seed."""
    if source is None or isinstance(source, torch.Generator):
        return source
    return torch.Generator().manual_seed(check_seed(source))


def _check_rewards(environment: Environment, rewards: Float[Tensor, "*batch steps"]) -> None:
    """Refuse a game in which a reward is no number, before a policy is blamed for what follows."""
    bad = ~torch.isfinite(rewards)
    if bool(bad.any()):
        t = int(bad.reshape(-1, bad.shape[-1]).any(dim=0).nonzero()[0]) + 1
        raise InputError(
            f"{type(environment).__name__} gave a reward that is not finite at step {t}: "
            "rewards must be numbers"
        )


def _check_policy_output(
    policy: Policy[Any, Any], environment: Environment, probabilities: Tensor
) -> None:
    """Refuse a game in which the policy gave no valid probabilities.

    Checked once at the end: a check at every step costs as much as a step.
    """
    actions = probabilities.shape[-1]
    if actions != environment.actions:
        raise InputError(
            f"{policy.name} gave probabilities for {actions} actions, "
            f"the environment has {environment.actions}"
        )
    check_probabilities(f"the probabilities of {policy.name}", probabilities)
