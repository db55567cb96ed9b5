"""Links in place of files and folders of runs, sweeps, stored results and figures.

Whichever file is a link, nothing outside of the folder may change, and nothing may be read through
a symbolic link.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from innerloop.identification.loading import load_model
from innerloop.ledger import sweeping
from innerloop.recipes.base import train_seeds
from innerloop.recipes.finding import read_recipe_name
from innerloop.recipes.listing import describe_folder, list_runs, load_curves
from innerloop.recipes.runs import load_finished_runs
from innerloop.recipes.sweep_survey import survey_sweep
from innerloop.recipes.sweeps import read_sweep
from innerloop.report.drawing import Drawings
from innerloop.report.export import write_figures
from innerloop.report.page import Chart
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.isolation import call_in_child
from tools.torture.victims import (
    SEED,
    SETTINGS,
    InlineEngine,
    check_here,
    ignore_notice,
    make_recipe,
    train_here,
)

PRECIOUS = b"somebody else's file"
CHART = Chart({"mark": "point", "data": {"values": [{"x": 1}]}, "encoding": {}}, [{"x": 1}])


class Victim(NamedTuple):
    """A folder whose files are replaced by links, and the functions that use it afterwards."""

    make: Callable[[Path], object]
    uses: tuple[Callable[[Path], object], ...]
    refuses: bool = False
    """Whether the last use must fail if anything in the folder is a link."""


class SweepEngine(InlineEngine):
    """Trains the runs of a sweep in this process."""

    work = staticmethod(sweeping.train_run)


def run_seeds(folder: Path) -> None:
    """Train two runs, or continue them."""
    train_seeds(make_recipe(), [SEED, SEED + 1], folder, resume=True, notice=ignore_notice)


def run_sweep(folder: Path) -> None:
    """Train a sweep of two runs, or continue it."""
    with mock.patch.object(sweeping, "parse_engine", return_value=SweepEngine):
        sweeping.sweep("linear-attention", {"blocks": [1, 2]}, folder, **SETTINGS)


def draw_figures(folder: Path) -> None:
    """Draw a figure for a page, and write one with its numbers."""
    folder.mkdir(exist_ok=True)
    drawings = Drawings(folder)
    drawings.draw(CHART.spec)
    drawings.tidy()
    write_figures(folder, {"losses": CHART})


def load_all(folder: Path) -> None:
    """Describe the runs in a folder, finished or not."""
    describe_folder(folder)
    list(list_runs(folder))
    list(load_finished_runs(folder))


def load_measures(folder: Path) -> None:
    load_curves([folder])


RUN_USES = (load_all, load_measures, lambda run: load_model(str(run)))
VICTIMS = {
    "run": Victim(
        train_here, (*RUN_USES, read_recipe_name, partial(train_here, resume=True)), refuses=True
    ),
    "seeds": Victim(run_seeds, (*RUN_USES, run_seeds)),
    "sweep": Victim(
        run_sweep, (load_all, lambda folder: survey_sweep(read_sweep(folder)), run_sweep)
    ),
    "cells": Victim(lambda folder: check_here(folder, []), (lambda f: check_here(f, []),)),
    "figures": Victim(draw_figures, (draw_figures,)),
}


def prepare(folder: Path) -> Path:
    """Make every victim in a process of its own, because the drawing library starts threads."""
    os.chdir(folder)
    for name, victim in VICTIMS.items():
        if call_in_child(partial(victim.make, folder / name), 60.0):
            raise RuntimeError(Path("error").read_text("utf-8"))
    return folder


def attempt(originals: Path, chance: random.Random, folder: Path) -> Verdict:
    """Replace entries of a victim by links to outside, then use the folder in every way."""
    name = chance.choice(sorted(VICTIMS))
    victim, place, outside = VICTIMS[name], folder / "inside" / name, folder / "outside"
    shutil.copytree(originals / name, place)
    outside.mkdir()
    is_hard = chance.random() < 0.2
    chosen = replace_by_links(place, outside, chance, is_hard)
    before = read_tree(outside)
    reset_reading_times(outside)
    is_late = not is_hard and chance.random() < 0.3
    # A late link is made between the check for links and the opening.
    hidden = mock.patch.object(Path, "is_symlink", return_value=False)
    with hidden if is_late else nullcontext():
        verdicts: list[Verdict] = [use_folder(use, place) for use in victim.uses]
    words = f"{'late ' * is_late}{'hard ' * is_hard}links {', '.join(chosen)} of {name}"
    if read := [] if is_hard else list_read_files(outside):
        raise Defect(f"a file is read through {words}: {', '.join(read)}")
    if read_tree(outside) != before:
        raise Defect(f"something outside is changed through {words}")
    if victim.refuses and not is_hard and not is_late and verdicts[-1] != "refused":
        raise Defect(f"a run goes on although there are {words}")
    return verdicts[-1]


def use_folder(use: Callable[[Path], object], folder: Path) -> Verdict:
    """Use a folder in one way; an error in one line counts as refused."""

    def call() -> Verdict:
        use(folder)
        return "survived"

    return refuse_or(call)


def replace_by_links(place: Path, outside: Path, chance: random.Random, is_hard: bool) -> list[str]:
    """Replace some entries by links, and return their names.

    A folder may move into its link's target.
    """
    entries = sorted(path for path in place.rglob("*") if path.is_file() or not is_hard)
    names = []
    for path in chance.sample(entries, chance.choice((1, 1, 2, len(entries)))):
        if not os.path.lexists(path) or path.parent.resolve() != path.parent:
            continue  # in a folder that is a link by now
        names.append(path.relative_to(place).as_posix())
        target = outside / f"{len(names)}"
        if is_hard:
            shutil.copy(path, target)
            path.unlink()
            os.link(target, path)
            continue
        way = chance.random()
        if way < 0.5:
            shutil.move(path, target)  # what it was, elsewhere
        else:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            if way < 0.7:
                target.write_bytes(PRECIOUS)
            elif way < 0.8:
                target.mkdir()
            elif way < 0.9:
                target = path  # a link to itself; else to what does not exist
        path.symlink_to(target)
    return names


def read_tree(folder: Path) -> dict[str, Any]:
    """Read all files below a folder, with the times of their last changes."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if is_plain_file(path) else None)
        for path in (folder, *folder.rglob("*"))
    }


def reset_reading_times(folder: Path) -> None:
    """Set the access times to 0, so that the next reading of a file changes its time."""
    for path in filter(is_plain_file, folder.rglob("*")):
        os.utime(path, ns=(0, path.stat().st_mtime_ns))


def list_read_files(folder: Path) -> list[str]:
    """List the files below a folder that were read since their access times were reset."""
    files = filter(is_plain_file, folder.rglob("*"))
    return sorted(path.name for path in files if path.stat().st_atime_ns)


def is_plain_file(path: Path) -> bool:
    return path.is_file() and not os.path.islink(path)


ATTACKS = (Attack("links", 2_000, prepare, attempt, sample=8, cost=0.3, limited=False),)
