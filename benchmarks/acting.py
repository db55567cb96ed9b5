"""A constructed transformer asked after every token: on what it kept, next to running all again.

LISTA-VM by causal ReLU attention (d = 8, 4 layers, float64, one thread, 4 instances in a batch)
answers after each of T examples, as one that acts must. Going on from the kept keys and values
costs each step a time that grows with T at most; running the whole prefix again costs a step as
much as all the steps before it. Sides take turns, and the median of the rounds counts.
"""

from __future__ import annotations

import math
import statistics
import sys
import time

import torch
from common import record

import innerloop
from innerloop.transformer import Transformer

D, STEPS, BATCH, ROUNDS = 8, 4, 4, 3
LENGTHS = [25, 50, 100, 200]
CLAIMED = 4


def kept(transformer: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """The output at every token, each computed once."""
    cache, out = transformer.begin(), []
    for i in range(tokens.shape[-2]):
        stream, cache = transformer.extend(cache, tokens[..., i : i + 1, :])
        out.append(stream)
    return torch.cat(out, dim=-2)


def again(transformer: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """The output at every token, each from the whole prefix."""
    with torch.no_grad():
        prefixes = (tokens[..., : i + 1, :] for i in range(tokens.shape[-2]))
        return torch.cat([transformer(prefix)[..., -1:, :] for prefix in prefixes], dim=-2)


def measure(length: int) -> dict[str, float]:
    """Seconds of both for a game of `length` examples, and how far their outputs differ."""
    built = innerloop.build("lista-vm", d=D, n=length, steps=STEPS, instances=2)
    problem = built.construction.distributions()[0].sample(
        BATCH, generator=torch.Generator().manual_seed(0)
    )
    tokens = built.construction.prompt(problem)
    times: dict[str, list[float]] = {"kept": [], "again": []}
    found = {}
    for _ in range(ROUNDS):
        for name, way in (("kept", kept), ("again", again)):
            start = time.perf_counter()
            found[name] = way(built.transformer, tokens)
            times[name].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(times[name]) for name in ("kept", "again"))
    differ = float((found["kept"] - found["again"]).abs().max())
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
    settings = {"d": D, "layers": STEPS, "batch": BATCH, "rounds": ROUNDS, "lengths": LENGTHS}
    found = {"lengths": rows, "exponent_kept": ours, "exponent_again": theirs}
    record("acting", start, settings, found)
    if rows[LENGTHS[-1]]["ratio"] < CLAIMED or max(row["differ"] for row in rows.values()) > 1e-9:
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
