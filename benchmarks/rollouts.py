"""Two hundred linear bandits played in one batch, against one after another, in one run.

The reference policies play 200 steps (d = 5, ten actions, float64) with the same random numbers on
both sides and one thread. Sides take turns: each round plays the batch, of which the median counts,
and then a fifth of the environments one by one, whose times are summed. Thompson sampling needs the
symmetric root of G⁻¹ for every environment at every step, by an eigendecomposition, which is not
faster in a batch: 0.61 ms of the 0.82 ms that 200 roots of 5×5 matrices took. Newton's iteration
for the polar factor of any other root, with scaling, agreed to within 3e-15 on everything tried,
but took six batched inversions, 0.76 ms: no gain, so eigendecompositions stay.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from common import record

from innerloop.policies.empirical_average import EmpiricalAveragePolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.linear_thompson import LinearThompsonPolicy
from innerloop.policies.rollout import Draws, play
from innerloop.policies.ucb import UCBPolicy
from innerloop.problems.linear_bandits import LinearBandits

ENVIRONMENTS, STEPS, ROUNDS = 200, 200, 5
CLAIMED = 100
POLICIES = {
    "LinUCB": LinUCBPolicy(),
    "soft LinUCB": LinUCBPolicy(temperature=0.5),
    "UCB1": UCBPolicy(),
    "empirical average": EmpiricalAveragePolicy(),
    "Thompson sampling": LinearThompsonPolicy(),
}


def measure(policy) -> dict[str, float]:
    """Measure the seconds for all environments batched and one by one, and how far games differ."""
    bandits = LinearBandits().sample(ENVIRONMENTS, generator=torch.Generator().manual_seed(0))
    draws = Draws.sample(policy, bandits, STEPS, 1)
    together = play(policy, bandits, draws)
    batched, alone, difference = [], 0.0, 0.0
    for turn in range(ROUNDS):
        start = time.perf_counter()
        play(policy, bandits, draws)
        batched.append(time.perf_counter() - start)
        for k in range(turn, ENVIRONMENTS, ROUNDS):
            one, own_draws = bandits[k : k + 1], draws.select(slice(k, k + 1))
            start = time.perf_counter()
            game = play(policy, one, own_draws)
            alone += time.perf_counter() - start
            difference = max(difference, float((game.regret[0] - together.regret[k]).abs().max()))
    ours = statistics.median(batched)
    return {"batched": ours, "one_by_one": alone, "ratio": alone / ours, "differ": difference}


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    rows = {}
    print(f"{'policy':<18} {'batched':>9} {'one by one':>11} {'ratio':>6}")
    for name, policy in POLICIES.items():
        row = rows[name] = measure(policy)
        print(
            f"{name:<18} {row['batched'] * 1e3:>7.0f}ms {row['one_by_one']:>10.1f}s "
            f"{row['ratio']:>5.0f}x",
            flush=True,
        )
    print(f"claimed: at least {CLAIMED} times faster, except Thompson sampling")
    settings = {"environments": ENVIRONMENTS, "steps": STEPS, "rounds": ROUNDS}
    record("rollouts", start, settings, {"policies": rows})
    difference = max(row["differ"] for row in rows.values())
    slowest = min(row["ratio"] for name, row in rows.items() if name != "Thompson sampling")
    if slowest < CLAIMED or difference > 1e-9:
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
