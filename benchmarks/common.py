"""What the benchmarks share: timing by the median, and results that say how they were made."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"


def median_seconds(
    work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The median time of `repeats` runs, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def record(name: str, start: float, settings: dict[str, Any], found: dict[str, Any]) -> None:
    """Write a result beside everything that is needed to make it again."""
    from innerloop.constructions.certificate import versions

    RESULTS.mkdir(parents=True, exist_ok=True)
    told = {
        "command": f"python benchmarks/{Path(sys.argv[0]).name}",
        "settings": settings,
        "versions": versions(),
        "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
        "seconds": round(time.perf_counter() - start, 1),
        **found,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(told, indent=2) + "\n")
    print(f"recorded in results/benchmarks/{path.name}")
