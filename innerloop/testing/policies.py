"""Check the properties that every policy must have, in all environments that it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from innerloop.errors import OutOfRangeError
from innerloop.policies.base import Policy
from innerloop.policies.rollout import Draws, play, rollout
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment
from innerloop.registry import load_members
from innerloop.testing.common import check_described, make_generator, require, require_close

STEPS = 8


def check_policy(
    policy: Policy[Any, Any] | type[Policy[Any, Any]],
    distributions: Sequence[Distribution] | None = None,
) -> None:
    """Check a policy: odds that sum to one, batches, seeds, prefixes and precision.

    Args:
        policy: An object or a class.
        distributions: The environments to play in; all registered ones if None.

    Raises:
        AssertionError: A property does not hold. The message states the mistake and how to correct
            it.
    """
    check_described(policy)
    made = policy.from_values({}) if inspect.isclass(policy) else policy
    if distributions is None:
        members = load_members("problems", Distribution).values()
        kinds = [kind for kind in members if issubclass(kind.problem_type, Environment)]
        distributions = [kind.from_values({}) for kind in kinds]
    played = 0
    for distribution in distributions:
        environment = distribution.sample(3, generator=make_generator())
        try:
            made.check_environment(environment)
        except OutOfRangeError:
            continue
        played += 1
        horizon = getattr(environment, "horizon", STEPS // 2)  # whole episodes, two of them
        check_play(made, environment, 2 * horizon)
    require(played, f"{made.name} accepts none of the environments: pass some that it plays in")


def check_play(policy: Policy[Any, Any], environment: Environment, steps: int = STEPS) -> None:
    """Check one policy in one batch of environments: batches, seeds, prefixes and precision."""
    name = f"{policy.name} in {type(environment).__name__}"
    draws = Draws.sample(policy, environment, steps, 1)
    together = play(policy, environment, draws)
    odds = together.probabilities.sum(dim=-1)
    require_close(odds, torch.ones_like(odds), f"{name}: probabilities must sum to 1", 1e-9)
    for k in range(environment.batch[0]):
        alone = play(policy, environment[k], draws.select(k))
        message = f"{name} mixes the environments of a batch: environment {k} alone differs"
        require_close(alone.history.actions, together.history.actions[k], message, 0)
        for one, all_of_them in zip(alone[1:], together[1:], strict=True):
            require_close(one, all_of_them[k], message, 1e-12)
    first, again = (rollout(policy, environment, steps, seed) for seed in (5, make_generator(5)))
    short = rollout(policy, environment, steps // 2, 5)
    for one, other in zip(first.history, again.history, strict=True):
        require(torch.equal(one, other), f"{name}: the same seed must give the same game")
    size = short.regret.shape[-1]
    for one, other in zip(first.history.truncate(size), short.history, strict=True):
        require(
            torch.equal(one, other),
            f"{name}: a longer game must begin with the steps of the shorter game",
        )
    single = rollout(policy, environment.to(torch.float32), steps, 5)
    require(
        single.regret.dtype == torch.float32,
        f"{name} must play a float32 environment in float32, got {single.regret.dtype}",
    )
