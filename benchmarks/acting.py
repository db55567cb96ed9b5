"""Compare the time of games played with cached activations and without a cache.

A constructed transformer runs soft LinUCB by causal ReLU attention (d = 2, three actions, 4 bandits
in a batch, float64, one thread). It plays games of T steps with `play`. It has 20 layers for every
T, which suffices to measure the cost but not for accurate probabilities. With the cache, the time
of a step grows at most linearly in T. Without it, every step processes all tokens of the game
again. Both players run alternately, and the median of the rounds is reported. Both must play the
same game.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from common import record
from torch import Tensor

from innerloop.constructions.soft_lin_ucb import SoftLinUCBConstruction
from innerloop.playing.player import TransformerPolicy
from innerloop.policies.base import Policy
from innerloop.policies.rollout import Draws, play
from innerloop.problems.bandit import Bandit
from innerloop.transformer import Transformer

STEPS, BATCH, ROUNDS = 18, 4, 3
LENGTHS = [25, 50, 100, 200]
CLAIMED = 4


class GameTokens(NamedTuple):
    """The tokens of a game so far."""

    t: int
    tokens: list[Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class RerunPolicy(Policy[Bandit, GameTokens]):
    """A policy that processes all tokens of the game again at every step."""

    construction: SoftLinUCBConstruction
    transformer: Transformer

    def __post_init__(self) -> None:
        """No parameters to check."""

    def init_state(self, environment: Bandit) -> GameTokens:
        return GameTokens(0, [])

    def probabilities(self, state: GameTokens, observation: Any, noise: Tensor) -> Tensor:
        observed = self.construction.encode_observation(state.t, observation, noise)
        with torch.no_grad():
            stream = self.transformer(torch.cat([*state.tokens, observed], dim=-2))
        return self.construction.log_odds(stream[..., -1, :]).softmax(dim=-1)

    def update(
        self, state: GameTokens, observation: Any, action: Tensor, reward: Tensor
    ) -> GameTokens:
        no_noise = reward.new_zeros(*reward.shape, 0)
        observed = self.construction.encode_observation(state.t, observation, no_noise)
        acted = self.construction.encode_action(state.t, observation, action, reward)
        return GameTokens(state.t + 1, [*state.tokens, observed, acted])


def measure(length: int) -> dict[str, float]:
    """Measure the seconds of both players for a game of `length` steps, and how far their
    probabilities differ."""
    construction = SoftLinUCBConstruction(n=length, steps=STEPS, alpha=0.5, temperature=0.1)
    parts: dict[str, Any] = {"construction": construction, "transformer": construction.transformer}
    cached = TransformerPolicy(**parts)
    players = {"kept": cached, "again": RerunPolicy(**parts)}
    bandits = construction.environments().sample(BATCH, generator=torch.Generator().manual_seed(0))
    draws = Draws.sample(cached, bandits, length, 1)
    times: dict[str, list[float]] = {name: [] for name in players}
    probabilities = {}
    for _ in range(ROUNDS):
        for name, player in players.items():
            start = time.perf_counter()
            probabilities[name] = play(player, bandits, draws).probabilities
            times[name].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(times[name]) for name in players)
    difference = float((probabilities["kept"] - probabilities["again"]).abs().max())
    return {"kept": ours, "again": theirs, "ratio": theirs / ours, "differ": difference}


def fit_exponent(rows: dict[int, dict[str, float]], side: str) -> float:
    """Fit the least-squares slope of log time against log T."""
    xs, ys = [math.log(n) for n in rows], [math.log(row[side]) for row in rows.values()]
    return statistics.linear_regression(xs, ys).slope


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    rows: dict[int, dict[str, float]] = {}
    print(f"{'T':>5} {'kept':>9} {'again':>9} {'ratio':>6}")
    for length in LENGTHS:
        row = rows[length] = measure(length)
        print(
            f"{length:>5} {row['kept']:>8.2f}s {row['again']:>8.2f}s {row['ratio']:>5.0f}x",
            flush=True,
        )
    ours, theirs = fit_exponent(rows, "kept"), fit_exponent(rows, "again")
    print(f"time ~ T^{ours:.2f} with the cache, T^{theirs:.2f} by rerunning every prefix")
    print(f"claimed: at least {CLAIMED} times faster at T = {LENGTHS[-1]}")
    settings = {
        **{"construction": "soft-lin-ucb", "layers": STEPS + 2, "batch": BATCH},
        **{"rounds": ROUNDS, "lengths": LENGTHS},
    }
    results = {"lengths": rows, "exponent_kept": ours, "exponent_again": theirs}
    record("acting", start, settings, results)
    if rows[LENGTHS[-1]]["ratio"] < CLAIMED or max(row["differ"] for row in rows.values()) > 1e-9:
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
