"""Measure the growth of regret of constructed transformers and of the policies that they run.

Both play in the same 200 environments with the same random numbers: linear bandits with a new
action set at every step (d = 2, three actions of norm up to 1, σ = 0.5) and random decision
processes (three states, two actions, episodes of three steps). The exponent is the slope of log
mean
cumulative regret over log t in the last decade of t. Its interval is a bootstrap over environments.

The theorems bound the regret in the worst environment by √T up to logarithms. In random
environments
it may grow more slowly. A slope above 1/2 would contradict the theorems only if it persisted. A
softmax with a fixed temperature never stops exploring, which eventually adds regret linear in t; in
theory, the temperature τ falls like 1/√T. The policies without a transformer are cheap, so they
also
play games that are ten times as long, with both temperatures.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from common import record

from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.soft_lin_ucb import SoftLinUCBConstruction
from innerloop.constructions.thompson_sampling import ThompsonSamplingConstruction
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.playing.contest import mean_with_band, play_contest
from innerloop.policies.rollout import rollout

ENVIRONMENTS, SEED, RESAMPLES, LONGER = 200, 0, 1000, 10
BANDIT: dict[str, Any] = {"n": 100, "steps": 220, "temperature": 0.05, "reward": 5.0}
PLAYERS: list[tuple[type[ActingConstruction], dict[str, Any]]] = [
    (SoftLinUCBConstruction, {**BANDIT, "alpha": 0.5}),
    (ThompsonSamplingConstruction, {**BANDIT, "terms": 6, "normal": 6.0}),
    (UCBVIConstruction, {"n": 60, "temperature": 0.02}),
]


def fit_exponent(regret: torch.Tensor) -> dict[str, float]:
    """Fit the slope of log cumulative regret over log time, with a 95 % bootstrap interval.

    Only the last factor of ten in time is used.
    """
    total = regret.cumsum(dim=-1).numpy()
    games = total.shape[-1]
    times = np.arange(games // 10, games + 1)
    times = times[times > 0]
    samples = np.random.default_rng(SEED).integers(len(total), size=(RESAMPLES, len(total)))
    means = np.concatenate([total.mean(axis=0)[None], total[samples].mean(axis=1)])
    slopes = np.polyfit(np.log(times), np.log(means[:, times - 1]).T, 1)[0]
    low, high = np.quantile(slopes[1:], [0.025, 0.975])
    return {"exponent": float(slopes[0]), "low": float(low), "high": float(high)}


def summarise(regret: torch.Tensor) -> dict[str, Any]:
    """Return the fitted exponent, and the curve with its 95 % band at about thirty times."""
    means = mean_with_band(regret)
    times = np.unique(np.geomspace(1, len(means), 30).round().astype(int)).tolist()
    curve = [{"t": t, "regret": means[t - 1][0], "band": means[t - 1][1]} for t in times]
    return {**fit_exponent(regret), "curve": curve}


def measure_longer_games(
    kind: type[ActingConstruction], settings: dict[str, Any]
) -> dict[str, Any]:
    """Measure the policy alone in games ten times as long, with the same τ and with τ/√10."""
    fits, n = {}, kind.cap_value("n", LONGER * settings["n"])
    for name, shrink in (("same temperature", 1.0), ("temperature over √10", LONGER**-0.5)):
        construction = kind.from_values(
            {**settings, "temperature": shrink * settings["temperature"]}
        )
        worlds = kind.from_values({**settings, "n": n}).environments()
        environment = worlds.sample(ENVIRONMENTS, generator=_make_generator())
        assert construction.max_game_steps is not None
        game = rollout(construction.policy, environment, LONGER * construction.max_game_steps, SEED)
        fits[name] = fit_exponent(game.regret)
    return fits


def _make_generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def measure(kind: type[ActingConstruction], settings: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    construction = kind.from_values(settings)
    environment = construction.environments().sample(ENVIRONMENTS, generator=_make_generator())
    assert construction.max_game_steps is not None
    game = play_contest(construction, environment, construction.max_game_steps, SEED)
    difference = (game.transformer.regret - game.policy.regret).sum(dim=-1)
    return {
        "settings": settings,
        "layers": construction.transformer.count()["layers"],
        "accuracy": getattr(construction, "accuracy", 0.0),
        "same_actions": game.agreement_count,
        "actions": game.action_count,
        "regret_apart": float(difference.mean()),
        "regret_apart_standard_error": float(difference.std() / len(difference) ** 0.5),
        **{name: summarise(part.regret) for name, part in zip(game._fields, game, strict=True)},
        "policy_ten_times_longer": measure_longer_games(kind, settings),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    rows = {}
    print(f"{'construction':<18} {'transformer':>20} {'policy':>20} {'uniform':>8} {'same':>14}")
    for kind, settings in PLAYERS:
        row = measure(kind, settings)
        rows[kind.from_values(settings).name] = row
        fits = (
            f"t^{fit['exponent']:.2f} ({fit['low']:.2f}–{fit['high']:.2f})"
            for fit in (row["transformer"], row["policy"])
        )
        same = f"{row['same_actions']}/{row['actions']}"
        uniform = row["uniform"]["exponent"]
        print(
            f"{kind.from_values(settings).name:<18} "
            + " ".join(f"{fit:>20}" for fit in fits)
            + f" {uniform:>8.2f} {same:>14}",
            flush=True,
        )
    print("claimed: transformers' regret grows no faster than √t, and equals the policies'")
    settings = {"environments": ENVIRONMENTS, "seed": SEED, "resamples": RESAMPLES}
    record("regret", start, settings, {"constructions": rows})
    slow = all(row["transformer"]["low"] <= 0.5 for row in rows.values())
    equal = all(
        abs(row["regret_apart"]) <= 3 * row["regret_apart_standard_error"] + 1e-9
        for row in rows.values()
    )
    if not (slow and equal):
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
