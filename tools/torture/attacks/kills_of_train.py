"""Kills of `train`: at every file operation, and at random moments.

A job script that always uses `--resume` is killed one to four times and then runs to its end. It
must end with exactly the weights and the history of an undisturbed run, never lose a checkpoint
that was written, and leave no temporary file.
"""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from innerloop.files import PARTIAL_PREFIX
from innerloop.recipes.base import train, train_seeds
from innerloop.training import checkpoint
from innerloop.training.history import read_history
from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.attacks.weights_file import holds_same
from tools.torture.isolation import call_in_child
from tools.torture.killing import Killer, kill_after
from tools.torture.victims import SEED, ignore_notice, make_recipe, read_weights

LIMIT = 60.0
"""The time limit in seconds of one run, which needs a tenth of a second."""


class Whole(NamedTuple):
    """The weights, the history, and the numbers of operations and seconds of an undisturbed run."""

    weights: dict[str, Tensor]
    history: list[dict[str, float]]
    operations: int
    seconds: float


def run_victim(folder: Path) -> None:
    """Train or resume as a job script does, with a checkpoint after every step."""
    defaults = train.__kwdefaults__ or {}
    defaults["every"] = 0.0
    train_seeds(make_recipe(), [SEED], folder, resume=True, notice=ignore_notice)


def prepare(folder: Path) -> Whole:
    """Train once undisturbed, and count its file operations and seconds."""
    os.chdir(folder)
    run, counted = folder / "run", folder / "counted"

    def count() -> None:
        killer = Killer(counted, None)
        killer.install()
        run_victim(counted)
        Path("count").write_text(str(killer.count), "utf-8")

    start = time.perf_counter()
    for work in (partial(run_victim, run), count):
        if call_in_child(work, LIMIT):
            raise RuntimeError(Path("error").read_text("utf-8"))
    seconds = (time.perf_counter() - start) / 2
    place = run / f"seed-{SEED}"
    operations = int(Path("count").read_text("utf-8"))
    return Whole(read_weights(place), read_timeless(place), operations, seconds)


def attempt(whole: Whole, chance: random.Random, folder: Path) -> Verdict:
    """Kill a run one to four times, then let it end, and compare."""
    os.chdir(folder)
    run, before = folder / "run", -1
    for _ in range(chance.choice((1, 1, 2, 4))):
        code = call_in_child(partial(die_in_run, run, draw_death(whole, chance)), LIMIT)
        check_exit(code)
        before = check_progress(run / f"seed-{SEED}", before)
        age_files(run)
    check_exit(call_in_child(partial(run_victim, run), LIMIT))
    place = run / f"seed-{SEED}"
    if not holds_same(read_weights(place), whole.weights):
        raise Defect("a run that was killed and resumed ended with other weights")
    if read_timeless(place) != whole.history:
        raise Defect("a run that was killed and resumed ended with another history")
    check_left_overs(run)
    return "survived"


def draw_death(whole: Whole, chance: random.Random) -> int | float:
    """Draw the moment of the kill: the number of a file operation, or seconds."""
    if chance.random() < 0.6:
        return chance.randint(1, whole.operations)
    return chance.uniform(0, 1.2 * whole.seconds)


def die_in_run(folder: Path, death: int | float) -> None:
    """Run the training until the kill."""
    if isinstance(death, int):
        Killer(folder, death).install()
    else:
        kill_after(death)
    run_victim(folder)


def check_exit(code: int) -> None:
    """Check that a child process ended without an error, or by the kill."""
    if code == 99:
        raise Defect(f"after a kill: {Path('error').read_text('utf-8')}")
    if code not in (0, -signal.SIGKILL, -signal.SIGALRM):
        raise Defect(f"a run that is killed or resumed ends with {code}")


def check_progress(place: Path, before: int) -> int:
    """Return the step of the checkpoint after a kill, which must be readable and no earlier
    than before.
    """
    path = place / "checkpoint.safetensors"
    if not path.exists():
        if before >= 0:
            raise Defect(f"a kill lost the checkpoint of step {before}")
        return -1
    step = checkpoint.read(path)[1]["step"]
    if step < before:
        raise Defect(f"a kill took the checkpoint back from step {before} to {step}")
    return step


def read_timeless(place: Path) -> list[dict[str, Any]]:
    """Return a history without its times."""
    rows = read_history(place / "history.csv")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def age_files(folder: Path, seconds: float = 300.0) -> None:
    """Set the times of temporary files back, as if the next run came a few minutes later."""
    then = time.time() - seconds
    for path in folder.rglob("*"):
        if is_left_over(path):
            os.utime(path, (then, then))


def check_left_overs(folder: Path) -> None:
    """Check that no temporary files remain after a run that ended without an error."""
    left = sorted(path.name for path in folder.rglob("*") if is_left_over(path))
    if left:
        raise Defect(f"{len(left)} temporary files are left after the next run")


def is_left_over(path: Path) -> bool:
    return path.name.startswith(PARTIAL_PREFIX) or path.suffix == ".tmp"


ATTACKS = (Attack("kills-of-train", 1000, prepare, attempt, seconds=300.0, cost=0.4, sample=4),)
