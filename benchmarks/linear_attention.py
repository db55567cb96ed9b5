"""Measure time and memory of linear attention with Gram matrices and with n×n scores.

One step of preconditioned gradient descent runs with d = 16 in float64, on contexts of 10³ … 10⁶
examples. Each measurement runs in its own process, so that its peak memory is measured separately.
The n×n scores are measured for contexts that need at most 10 GiB.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import subprocess
import sys
import time

D = 16
LENGTHS = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
LONGEST_SCORES = 30_000
REPEATS = {"gram": 7, "scores": 3}


def measure(n: int, order: str) -> dict[str, float]:
    """Measure time and peak memory of one forward pass over n + 1 tokens."""
    import torch
    from common import median_seconds

    import innerloop

    attention = (
        innerloop.build("preconditioned-gradient-descent", d=D, steps=1, instances=1)
        .transformer.blocks()[0]
        .attention
    )
    assert attention is not None
    tokens = torch.randn(n + 1, D + 1, dtype=torch.float64, generator=torch.manual_seed(0))
    with torch.no_grad():
        seconds = median_seconds(lambda: attention(tokens, n, order), REPEATS[order])  # pyright: ignore[reportArgumentType]
        checksum = float(attention(tokens, n, order).sum())  # pyright: ignore[reportArgumentType]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    return {"seconds": seconds, "peak_gib": peak, "checksum": checksum}


def measure_in_subprocess(n: int, order: str) -> dict[str, float]:
    process = subprocess.run(
        [sys.executable, __file__, str(n), order], capture_output=True, text=True, check=True
    )
    return json.loads(process.stdout)


def fit_slope(points: dict[int, dict[str, float]]) -> float:
    """Fit the least-squares slope of log time against log n."""
    xs = [math.log(n) for n in points]
    ys = [math.log(point["seconds"]) for point in points.values()]
    return statistics.linear_regression(xs, ys).slope


def main() -> None:
    from common import record

    start = time.perf_counter()
    gram: dict[int, dict[str, float]] = {}
    scores: dict[int, dict[str, float]] = {}
    print(f"{'n':>9} {'gram':>10} {'n×n':>10} {'ratio':>7} {'peak gram':>10} {'peak n×n':>9}")
    for n in LENGTHS:
        ours = gram[n] = measure_in_subprocess(n, "gram")
        line = f"{n:>9} {ours['seconds'] * 1e3:>8.2f}ms"
        if n <= LONGEST_SCORES:
            theirs = scores[n] = measure_in_subprocess(n, "scores")
            assert math.isclose(theirs["checksum"], ours["checksum"], rel_tol=1e-9)
            line += (
                f" {theirs['seconds'] * 1e3:>8.2f}ms {theirs['seconds'] / ours['seconds']:>6.0f}x"
            )
            line += f" {ours['peak_gib']:>7.2f}GiB {theirs['peak_gib']:>6.2f}GiB"
        else:
            line += f" {'—':>10} {'—':>7} {ours['peak_gib']:>7.2f}GiB {'—':>9}"
        print(line, flush=True)
    linear, quadratic = fit_slope(gram), fit_slope(scores)
    peak = gram[LENGTHS[-1]]["peak_gib"]
    print(f"time ~ n^{linear:.2f} by Gram matrices (claimed: at most 1.15)")
    print(f"time ~ n^{quadratic:.2f} by n×n scores")
    print(f"peak memory at 10⁶ tokens: {peak:.2f} GiB (claimed: below 2 GB)")
    results = {"gram": gram, "scores": scores, "slope_gram": linear, "slope_scores": quadratic}
    record("linear_attention", start, {"d": D, "dtype": "float64", "lengths": LENGTHS}, results)
    if linear > 1.15 or peak * 1024**3 > 2e9:
        sys.exit("a claim does not hold in this run")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), sys.argv[2])))
    else:
        main()
