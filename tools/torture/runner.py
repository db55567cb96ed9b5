"""Run attacks one after another, with a progress bar, and record the table after each."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tools.torture import attacks
from tools.torture.attack import Attack, Unavailable
from tools.torture.isolation import run_tries
from tools.torture.table import Row

PREFIX = "torture-"
"""The beginning of the name of an attack's folder; the process id follows."""


def load_attacks() -> dict[str, Attack]:
    """Load every attack by its name: the `ATTACKS` of each file below `attacks`."""
    known: dict[str, Attack] = {}
    for module in sorted(part.name for part in pkgutil.iter_modules(attacks.__path__)):
        for attack in importlib.import_module(f"{attacks.__name__}.{module}").ATTACKS:
            known[attack.name] = attack
    return known


def run_attack(
    attack: Attack,
    numbers: range,
    seed: int,
    *,
    workers: int = 1,
    progress: Callable[[float, str], None] = lambda share, doing: None,
) -> Row:
    """Run the tries of these numbers of one attack, and return its row of the table."""
    row, start, here = Row(attack.name, seed), time.perf_counter(), Path.cwd()
    torch.set_num_threads(1)  # before any fork: the threads of a pool do not survive one
    remove_left_overs()
    root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=find_scratch()))
    try:
        (root / "prepared").mkdir()
        prepared = attack.prepare(root / "prepared")
        for result in run_tries(attack, prepared, numbers, seed, workers, root):
            row.add(result)
            progress(row.tries / len(numbers), f"{attack.name}, {row.counts['defect']} defects")
    except Unavailable as error:
        row.skipped = str(error)
    finally:
        os.chdir(here)  # preparing may have gone to a folder that is removed now
        shutil.rmtree(root, ignore_errors=True)
    row.seconds = time.perf_counter() - start
    return row


def find_scratch() -> str | None:
    """Return a folder in memory if there is one, because the attacks write very many files."""
    memory = "/dev/shm"
    return memory if os.path.isdir(memory) and os.access(memory, os.W_OK) else None


def remove_left_overs() -> None:
    """Remove the folders of attacks whose process was killed."""
    for path in Path(find_scratch() or tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        process = path.name.removeprefix(PREFIX).partition("-")[0]
        if process.isdigit() and not is_running(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def is_running(process: int) -> bool:
    """Return whether there is a process with this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
