"""Play several policies with the same environments and random draws, and compare their regret."""

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
    """Play each policy in every environment; equal actions meet equal random draws."""
    for player in players.values():
        player.check_environment(environment)
    played = {}
    for k, (name, player) in enumerate(players.items()):
        progress(k / len(players), name)
        played[name] = play(player, environment, Draws.sample(player, environment, steps, seed))
    return played


def list_references(environment: Environment) -> dict[str, Policy[Any, Any]]:
    """List the registered policies that can play in an environment, with their default numbers."""
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
    """Choose reference policies by name; the default is all except the oracle."""
    known = list_references(environment)
    if not names:
        return {name: policy for name, policy in known.items() if name != "optimal"}
    for name in names:
        if name not in known:
            raise OutOfRangeError(
                f"{name} cannot play here; those that can are {', '.join(sorted(known))}"
            )
    return {name: known[name] for name in names}


def list_regret_rows(played: Mapping[str, Rollout]) -> list[dict[str, Any]]:
    """List each player's mean cumulative regret over environments, with a 95 % band."""
    return [
        {"player": name, "t": t, "regret": mean, "low": mean - half, "high": mean + half}
        for name, game in played.items()
        for t, (mean, half) in enumerate(mean_with_band(game.regret), 1)
    ]
