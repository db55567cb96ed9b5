"""Play several policies in the same environments with the same random numbers; compare regrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.errors import InputError, OutOfRangeError
from innerloop.playing.contest import mean_with_band
from innerloop.policies.base import Policy
from innerloop.policies.rollout import Draws, Rollout, play
from innerloop.problems.environment import Environment
from innerloop.progress import Progress, ignore_progress
from innerloop.registry import load_members, make_member


def play_players(
    players: Mapping[str, Policy[Any, Any]],
    environment: Environment,
    steps: int,
    *,
    seed: int = 0,
    progress: Progress = ignore_progress,
) -> dict[str, Rollout]:
    """Play every policy in every environment of a batch.

    All games use the same random numbers, so that equal actions have equal consequences.

    Args:
        players: The policies, by name.
        environment: A batch of environments.
        steps: Number of steps of a game.
        seed: Seed of the random numbers.
        progress: Function that is called with the completed share of the work, from 0 to 1, and a
            name.
    """
    for player in players.values():
        player.check_environment(environment)
    played = {}
    for k, (name, player) in enumerate(players.items()):
        progress(k / len(players), name)
        played[name] = play(player, environment, Draws.sample(player, environment, steps, seed))
    return played


def list_references(environment: Environment) -> dict[str, Policy[Any, Any]]:
    """Return the registered policies that can play in an environment, with default parameters."""
    references = {}
    for name, kind in load_members("policies", Policy).items():
        try:
            policy: Policy[Any, Any] = make_member("policies", Policy, kind, {})
            policy.check_environment(environment)
        except InputError:
            continue
        references[name] = policy
    return references


def choose_references(
    names: list[str] | None, environment: Environment
) -> dict[str, Policy[Any, Any]]:
    """Return the reference policies with these names; by default, all except the optimal policy."""
    known = list_references(environment)
    if not names:
        return {name: policy for name, policy in known.items() if name != "optimal"}
    for name in names:
        if name not in known:
            raise OutOfRangeError(
                f"{name} cannot play in this environment, only {', '.join(sorted(known))} can"
            )
    return {name: known[name] for name in names}


def list_regret_rows(played: Mapping[str, Rollout]) -> list[dict[str, Any]]:
    """Return the mean cumulative regret of every player over environments, with a 95 % band."""
    return [
        {"player": name, "t": t, "regret": mean, "low": mean - half, "high": mean + half}
        for name, game in played.items()
        for t, (mean, half) in enumerate(mean_with_band(game.regret), 1)
    ]
