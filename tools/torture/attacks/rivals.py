"""Rivals: several trainings are started in one folder at the same moment.

Either one trains and the others are refused, or they take turns. No finished run may be
overwritten, and every run that reports success must exist.
"""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

from innerloop.errors import InputError
from innerloop.recipes.base import load, train
from tools.torture.attack import Attack, Defect, Verdict, check_message, describe_error
from tools.torture.attacks.kills_of_train import LIMIT, check_left_overs
from tools.torture.victims import make_recipe

SEEDS = (3, 4, 5)
"""The seeds of the rivals, which differ so that their models differ."""


def prepare(folder: Path) -> None:
    """Train once, so that everything is imported before the race."""
    train(make_recipe(), seed=SEEDS[0], folder=folder / "first")


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Start two or three trainings in one folder, each a little after the other."""
    os.chdir(folder)
    seeds = SEEDS[: chance.choice((2, 3))]
    start = time.monotonic() + 0.02
    delays = [start + chance.uniform(0, chance.choice((0.0, 0.02, 0.2))) for _ in seeds]
    children = [
        start_child(partial(race, folder / "run", seed, when))
        for seed, when in zip(seeds, delays, strict=True)
    ]
    written = []
    for seed, pid in zip(seeds, children, strict=True):
        code = wait_for(pid)
        if code == 99:
            raise Defect(f"a rival fails: {Path(f'error-{seed}').read_text('utf-8')}")
        if code == 0:
            written.append(seed)
    if len(written) != 1:
        raise Defect(f"{len(written)} rivals say that they wrote one model, expected 1")
    _, _, about = load(folder / "run" / "model.safetensors")
    if about["seed"] != written[0]:
        raise Defect("the model of the rival that won is gone")
    check_left_overs(folder / "run")
    return "survived"


def race(folder: Path, seed: int, when: float) -> int:
    """Start training at a given moment.

    Return 0 if the run was written, 2 if it was refused, else 99.
    """
    time.sleep(max(0.0, when - time.monotonic()))
    try:
        train(make_recipe(), seed=seed, folder=folder)
        return 0
    except InputError as error:
        check_message(str(error))
        return 2


def start_child(work: partial[int]) -> int:
    """Fork a child that exits with the result of `work`, or with 99 and a note of the error."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()
        except BaseException as error:
            Path(f"error-{work.args[1]}").write_text(describe_error(error), "utf-8")
        finally:
            os._exit(code)
    return pid


def wait_for(pid: int) -> int:
    """Wait for a child; one that takes too long is a defect."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise Defect(f"a rival hangs for more than {LIMIT:g} s")


ATTACKS = (Attack("rivals", 500, prepare, attempt, seconds=300.0, cost=0.4, sample=1),)
