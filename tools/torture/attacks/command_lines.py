"""Bad command lines, run in this process: one line and an exit code that means something."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.commands import judge, make_bad_command, run_here, write_traps


def prepare(folder: Path) -> None:
    """Import the command line and what its commands need, once for all lanes."""
    os.environ["INNERLOOP_RESULTS"] = str(folder / "results")
    run_here(["list", "--json"])


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Run one bad command line among traps: modules that fail, pipes, folders, damaged files."""
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
        shown = " ".join(ascii(word)[:60] for word in words)
        raise Defect(f"{defect[:200]} (innerloop {shown[:300]})")
    return "refused" if code == 2 else "survived"


ATTACKS = (Attack("command-lines", 50_000, prepare, attempt, seconds=30.0, sample=30),)
