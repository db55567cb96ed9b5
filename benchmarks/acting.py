"""A constructed transformer that plays: on what it kept, next to running the whole game again.

Soft LinUCB by causal ReLU attention (d = 2, three actions, 4 bandits in a batch, float64, one
thread) plays games of T steps through `play`, with 20 layers at every T: enough for the cost, which
is what is measured, not for the odds. Going on from what was kept, a step costs a time that grows
with T at most; the other player runs every prefix from its first token. Sides take turns, and the
median of the rounds counts. Both must make the same game.
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

from innerloop.constructions.player import TransformerPolicy
from innerloop.constructions.soft_lin_ucb import SoftLinUCBByAttention
from innerloop.policies.base import Policy
from innerloop.policies.rollout import Draws, play
from innerloop.problems.bandit import Bandit
from innerloop.transformer import Transformer

STEPS, BATCH, ROUNDS = 18, 4, 3
LENGTHS = [25, 50, 100, 200]
CLAIMED = 4


class Tokens(NamedTuple):
    """A game so far, as its tokens."""

    t: int
    tokens: list[Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Again(Policy[Bandit, Tokens]):
    """Plays a construction by running all tokens of the game at every step."""

    construction: SoftLinUCBByAttention
    transformer: Transformer

    def __post_init__(self) -> None:
        """No parameters to check."""

    def start(self, environment: Bandit) -> Tokens:
        return Tokens(0, [])

    def probabilities(self, state: Tokens, observation: Any, noise: Tensor) -> Tensor:
        shown = self.construction.observed(state.t, observation, noise)
        with torch.no_grad():
            stream = self.transformer(torch.cat([*state.tokens, shown], dim=-2))
        return self.construction.log_odds(stream[..., -1, :]).softmax(dim=-1)

    def update(self, state: Tokens, observation: Any, action: Tensor, reward: Tensor) -> Tokens:
        none = reward.new_zeros(*reward.shape, 0)
        shown = self.construction.observed(state.t, observation, none)
        acted = self.construction.acted(state.t, observation, action, reward)
        return Tokens(state.t + 1, [*state.tokens, shown, acted])


def measure(length: int) -> dict[str, float]:
    """Seconds of both for a game of `length` steps, and how far their odds differ."""
    construction = SoftLinUCBByAttention(n=length, steps=STEPS, alpha=0.5, temperature=0.1)
    parts: dict[str, Any] = {"construction": construction, "transformer": construction.transformer}
    kept = TransformerPolicy(**parts)
    players = {"kept": kept, "again": Again(**parts)}
    bandits = construction.worlds().sample(BATCH, generator=torch.Generator().manual_seed(0))
    draws = Draws.of(kept, bandits, length, 1)
    times: dict[str, list[float]] = {name: [] for name in players}
    odds = {}
    for _ in range(ROUNDS):
        for name, player in players.items():
            start = time.perf_counter()
            odds[name] = play(player, bandits, draws).probabilities
            times[name].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(times[name]) for name in players)
    differ = float((odds["kept"] - odds["again"]).abs().max())
    return {"kept": ours, "again": theirs, "ratio": theirs / ours, "differ": differ}


def exponent(rows: dict[int, dict[str, float]], side: str) -> float:
    """The least-squares slope of log time against log T."""
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
    ours, theirs = exponent(rows, "kept"), exponent(rows, "again")
    print(f"time ~ T^{ours:.2f} on what was kept, T^{theirs:.2f} by running all again")
    print(f"claimed: at least {CLAIMED} times faster at T = {LENGTHS[-1]}")
    settings = {
        **{"construction": "soft-lin-ucb", "layers": STEPS + 2, "batch": BATCH},
        **{"rounds": ROUNDS, "lengths": LENGTHS},
    }
    found = {"lengths": rows, "exponent_kept": ours, "exponent_again": theirs}
    record("acting", start, settings, found)
    if rows[LENGTHS[-1]]["ratio"] < CLAIMED or max(row["differ"] for row in rows.values()) > 1e-9:
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
