"""Kills of `check`: at every file operation, and at random moments with workers running.

A run over the test claims is killed one to four times and then runs to its end. Results that were
stored before a kill must not be computed again, all results must equal those of an undisturbed run,
and no temporary file may remain.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.ledger import processes
from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.attacks.kills_of_train import (
    LIMIT,
    age_files,
    check_exit,
    check_left_overs,
)
from tools.torture.isolation import call_in_child
from tools.torture.killing import Killer, kill_after
from tools.torture.victims import InlineEngine, check_here, read_cells


class Whole(NamedTuple):
    """The results of an undisturbed run."""

    results: dict[str, Any]
    operations: int
    seconds: float


def prepare(folder: Path) -> Whole:
    """Check once undisturbed, and count the file operations and seconds."""
    os.chdir(folder)
    cells = folder / "cells"
    check_here(folder / "first", [])  # what is parsed once is known to all children then

    def count() -> None:
        killer = Killer(cells, None)
        killer.install()
        check_here(cells, [])
        Path("count").write_text(str(killer.count), "utf-8")

    start = time.perf_counter()
    if call_in_child(count, LIMIT):
        raise RuntimeError(Path("error").read_text("utf-8"))
    seconds = time.perf_counter() - start
    return Whole(read_cells(cells), int(Path("count").read_text("utf-8")), seconds)


def attempt(whole: Whole, chance: random.Random, folder: Path) -> Verdict:
    """Kill a run one to four times, then let it end, and compare."""
    os.chdir(folder)
    cells = folder / "cells"
    for _ in range(chance.choice((1, 1, 2, 4))):
        before = read_stamps(cells)
        check_exit(call_in_child(partial(die_in_run, cells, draw_death(whole, chance)), LIMIT))
        check_kept(before, cells)
        age_files(cells)
    before = read_stamps(cells)
    check_exit(call_in_child(partial(check_here, cells, []), LIMIT))
    check_kept(before, cells)
    if read_cells(cells) != whole.results:
        raise Defect("a run of claims that was killed has other results")
    check_left_overs(cells)
    return "survived"


def draw_death(whole: Whole, chance: random.Random) -> int | float:
    """Draw the moment of the kill: the number of a file operation, or seconds."""
    if chance.random() < 0.6:
        return chance.randint(1, whole.operations)
    return chance.uniform(0, 2 * whole.seconds + 0.1)


def die_in_run(cells: Path, death: int | float) -> None:
    """Check the claims, in this process or with workers, until the kill."""
    if isinstance(death, int):
        Killer(cells, death).install()
        check_here(cells, [], InlineEngine)
        return
    kill_after(death)
    check_here(cells, [], fork_engine)


def fork_engine() -> processes.ProcessEngine:
    """Make an engine whose workers are forks: a fork server would import everything after each
    kill.

    A fork inherits the parent's end of the pipe that reports the parent's death, so each closes it
    first.
    """
    choose, watch = multiprocessing.get_context, processes.exit_with_parent
    multiprocessing.get_context = lambda method=None: choose("fork")  # pyright: ignore
    multiprocessing.get_all_start_methods = lambda: ["fork"]
    engine = processes.ProcessEngine(2)

    def watch_parent(pipe: Connection) -> None:
        engine._parent_end.close()  # pyright: ignore[reportPrivateUsage]
        watch(pipe)

    processes.exit_with_parent = watch_parent
    return engine


def read_stamps(cells: Path) -> dict[str, tuple[bytes, int]]:
    """Read the bytes and the time of every finished cell."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in cells.glob("*/*/*.json")
    }


def check_kept(before: dict[str, tuple[bytes, int]], cells: Path) -> None:
    """Check that stored results are unchanged: neither lost nor computed again."""
    after = read_stamps(cells)
    if any(after.get(name) != stamp for name, stamp in before.items()):
        raise Defect("a finished cell was lost or made again after a kill")


ATTACKS = (Attack("kills-of-check", 1000, prepare, attempt, seconds=300.0, cost=0.35, sample=3),)
