"""Compare the time of `innerloop --help` with that of starting Python; both run alternately."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from common import record

RUNS = 15
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "innerloop --help": [sys.executable, "-m", "innerloop", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def measure_seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    start = time.perf_counter()
    for command in COMMANDS.values():
        measure_seconds(command)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            times[name].append(measure_seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    bare = medians["python -c pass"]
    for name, median in medians.items():
        print(f"{name:<18} {median * 1e3:>7.0f} ms  {median / bare:>6.1f} × a bare interpreter")
    print("claimed: innerloop --help answers in under half a second")
    record("startup", start, {"runs": RUNS}, {"median_seconds": medians})
    if medians["innerloop --help"] > 0.5:
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
