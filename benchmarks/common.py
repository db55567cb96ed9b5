"""Helpers shared by the benchmarks: median timing, and result files that record their settings."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"


def median_seconds(
    work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Measure the median time of `repeats` runs, after one warm-up run."""
    work()
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def measure_in_turns(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    repeats: Mapping[str, int] | None = None,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Measure the median time of several functions, called alternately after one warm-up call each.

    Other load on the machine therefore affects all functions equally. A fast function may be
    repeated within its turn; the time of one repetition is reported.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            count = (repeats or {}).get(name, 1)
            start = clock()
            for _ in range(count):
                work()
            if turn:
                times[name].append((clock() - start) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def record(name: str, start: float, settings: dict[str, Any], results: dict[str, Any]) -> None:
    """Write a result together with everything needed to reproduce it."""
    from innerloop.provenance import collect_versions

    RESULTS.mkdir(parents=True, exist_ok=True)
    contents = {
        "command": f"python benchmarks/{Path(sys.argv[0]).name}",
        "settings": settings,
        "versions": collect_versions(),
        "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
        "seconds": round(time.perf_counter() - start, 1),
        **results,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(contents, indent=2) + "\n")
    print(f"recorded in results/benchmarks/{path.name}")
