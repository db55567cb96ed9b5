"""Bad command lines: each must end with a meaningful exit code and a one-line message."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.commands import (
    FAULTS,
    judge,
    make_bad_command,
    run_apart,
    run_here,
    write_traps,
)


def prepare(folder: Path) -> None:
    """Import the command line and the modules of its commands, once for all worker processes."""
    os.environ["INNERLOOP_RESULTS"] = str(folder / "results")
    run_here(["list", "--json"])


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Run one bad command line in a folder with traps: failing modules, pipes, folders, damaged
    files.
    """
    traps = folder.parent / "traps"  # one folder for all tries: each that is imported from stays
    if not traps.exists():
        traps.mkdir()
        write_traps(traps)
    os.chdir(traps)
    words = make_bad_command(chance)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user
        code, out, err = run_here(words)
    if defect := judge(code, out, err):
        command = " ".join(ascii(word)[:60] for word in words)
        raise Defect(f"{defect[:200]} (innerloop {command[:300]})")
    return "refused" if code == 2 else "survived"


def attempt_apart(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Run a bad or harmless command line as a process in a broken environment."""
    write_traps(folder)
    os.chdir(folder)
    harmless = [["--version"], ["--help"], ["list", "recipes"]]
    words = make_bad_command(chance) if chance.random() < 0.7 else chance.choice(harmless)
    words = [word.replace("\0", "0")[:100_000] for word in words]  # what a process can be given
    fault = chance.choice(FAULTS)
    if defect := judge(*run_apart(words, fault)):
        command = " ".join(ascii(word)[:60] for word in words)
        raise Defect(f"{defect[:200]} (innerloop {command[:300]} under {fault})")
    return "survived"


ATTACKS = (
    Attack("command-lines", 50_000, prepare, attempt, seconds=30.0, sample=20),
    Attack("broken-surroundings", 200, prepare, attempt_apart, 120.0, 0, cost=2.0, limited=False),
)
