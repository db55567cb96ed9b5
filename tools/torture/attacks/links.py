"""Links in place of the files of a run: a resumed run must not write to what they point to."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from innerloop.errors import InputError
from innerloop.recipes.listing import describe_folder
from innerloop.recipes.runs import load_finished_runs
from tools.torture.attack import Attack, Defect, Verdict, check_message
from tools.torture.victims import train_here

PRECIOUS = b"somebody else's file"


def prepare(folder: Path) -> Path:
    """Train the run whose files are replaced."""
    train_here(folder / "run")
    return folder / "run"


def attempt(original: Path, chance: random.Random, folder: Path) -> Verdict:
    """Replace files of the run by links to outside, then list the run and go on with it."""
    run, outside = folder / "run", folder / "outside"
    shutil.copytree(original, run)
    names = sorted(path.name for path in run.iterdir())
    hard = chance.random() < 0.2
    chosen = [".lock"] if hard else chance.sample(names, chance.randint(1, len(names)))
    for name in chosen:
        target = outside / chance.choice(("file", name))
        target.parent.mkdir(exist_ok=True)
        if chance.random() < 0.5 and not hard:
            shutil.copy(run / name, target)  # a link to a sound file elsewhere
        elif hard or chance.random() < 0.8:
            target.write_bytes(PRECIOUS)
        (run / name).unlink()
        (os.link if hard else os.symlink)(target, run / name)
    before = read_files(outside)
    describe_folder(run)
    list(load_finished_runs(folder))
    try:
        train_here(run, resume=True)
    except InputError as error:
        check_message(str(error))
    else:
        raise Defect(f"a run went on although {', '.join(chosen)} is a link")
    if read_files(outside) != before:
        raise Defect(f"a file outside of the run was written through {', '.join(chosen)}")
    return "refused"


def read_files(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


ATTACKS = (Attack("links", 2_000, prepare, attempt, sample=20),)
