"""How regret grows, of constructed transformers and of the policies they are built from.

Both play the same 200 environments with the same luck: linear bandits with a fresh action set at
every step (d = 2, three actions of norm up to 1, σ = 0.5) and random decision processes (three
states, two actions, episodes of three). The exponent is the slope of log mean cumulative regret
against log t over the last decade of t, its interval a bootstrap over environments.

The theorems bound regret by √T up to logarithms, for the worst environments; on drawn ones it may
grow more slowly, and a slope above 1/2 would contradict them only if it stayed. A softmax of fixed
temperature goes on exploring, which in the end adds regret linear in t: theory lets τ fall like
1/√T. The policies alone, which cost little, are played ten times as long with both.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from common import record

from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.contest import banded, contest
from innerloop.constructions.soft_lin_ucb import SoftLinUCBByAttention
from innerloop.constructions.thompson_sampling import ThompsonSamplingByAttention
from innerloop.constructions.ucb_vi import UCBVIDecoder
from innerloop.policies.rollout import rollout

ENVIRONMENTS, SEED, RESAMPLES, LONGER = 200, 0, 1000, 10
BANDIT: dict[str, Any] = {"n": 100, "steps": 220, "temperature": 0.05, "reward": 5.0}
PLAYERS: list[tuple[type[ActingConstruction], dict[str, Any]]] = [
    (SoftLinUCBByAttention, {**BANDIT, "alpha": 0.5}),
    (ThompsonSamplingByAttention, {**BANDIT, "terms": 6, "normal": 6.0}),
    (UCBVIDecoder, {"n": 60, "temperature": 0.02}),
]


def exponent(regret: torch.Tensor) -> dict[str, float]:
    """The slope over the last decade of time, with a 95 % interval."""
    total = regret.cumsum(dim=-1).numpy()
    games = total.shape[-1]
    times = np.arange(games // 10, games + 1)
    times = times[times > 0]
    drawn = np.random.default_rng(SEED).integers(len(total), size=(RESAMPLES, len(total)))
    means = np.concatenate([total.mean(axis=0)[None], total[drawn].mean(axis=1)])
    slopes = np.polyfit(np.log(times), np.log(means[:, times - 1]).T, 1)[0]
    low, high = np.quantile(slopes[1:], [0.025, 0.975])
    return {"exponent": float(slopes[0]), "low": float(low), "high": float(high)}


def told(regret: torch.Tensor) -> dict[str, Any]:
    """The fit, and the curve with its 95 % band at about thirty times."""
    means = banded(regret)
    shown = np.unique(np.geomspace(1, len(means), 30).round().astype(int)).tolist()
    curve = [{"t": t, "regret": means[t - 1][0], "band": means[t - 1][1]} for t in shown]
    return {**exponent(regret), "curve": curve}


def longer(kind: type[ActingConstruction], settings: dict[str, Any]) -> dict[str, Any]:
    """The policy alone in games ten times as long, with the same τ and with τ/√10."""
    found, n = {}, kind.capped("n", LONGER * settings["n"])
    for name, shrink in (("same temperature", 1.0), ("temperature over √10", LONGER**-0.5)):
        construction = kind.made({**settings, "temperature": shrink * settings["temperature"]})
        worlds = kind.made({**settings, "n": n}).worlds()
        environment = worlds.sample(ENVIRONMENTS, generator=_seeded())
        assert construction.longest is not None
        game = rollout(construction.policy, environment, LONGER * construction.longest, SEED)
        found[name] = exponent(game.regret)
    return found


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def measure(kind: type[ActingConstruction], settings: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    construction = kind.made(settings)
    environment = construction.worlds().sample(ENVIRONMENTS, generator=_seeded())
    assert construction.longest is not None
    game = contest(construction, environment, construction.longest, SEED)
    apart = (game.transformer.regret - game.policy.regret).sum(dim=-1)
    return {
        "settings": settings,
        "layers": construction.transformer.count()["layers"],
        "accuracy": getattr(construction, "accuracy", 0.0),
        "same_actions": game.same,
        "actions": game.choices,
        "regret_apart": float(apart.mean()),
        "regret_apart_standard_error": float(apart.std() / len(apart) ** 0.5),
        **{name: told(part.regret) for name, part in zip(game._fields, game, strict=True)},
        "policy_ten_times_longer": longer(kind, settings),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    found = {}
    print(f"{'construction':<18} {'transformer':>20} {'policy':>20} {'uniform':>8} {'same':>14}")
    for kind, settings in PLAYERS:
        row = measure(kind, settings)
        found[kind.made(settings).name] = row
        fits = (
            f"t^{fit['exponent']:.2f} ({fit['low']:.2f}–{fit['high']:.2f})"
            for fit in (row["transformer"], row["policy"])
        )
        same = f"{row['same_actions']}/{row['actions']}"
        uniform = row["uniform"]["exponent"]
        print(
            f"{kind.made(settings).name:<18} "
            + " ".join(f"{fit:>20}" for fit in fits)
            + f" {uniform:>8.2f} {same:>14}",
            flush=True,
        )
    print("claimed: transformers' regret grows no faster than √t, and is the policies'")
    settings = {"environments": ENVIRONMENTS, "seed": SEED, "resamples": RESAMPLES}
    record("regret", start, settings, {"constructions": found})
    slow = all(row["transformer"]["low"] <= 0.5 for row in found.values())
    equal = all(
        abs(row["regret_apart"]) <= 3 * row["regret_apart_standard_error"] + 1e-9
        for row in found.values()
    )
    if not (slow and equal):
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
