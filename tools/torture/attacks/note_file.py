"""Damaged notes that say where a run is stored: the report follows them."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from innerloop.recipes.runs import NOTES, load_finished_runs, note_run
from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.corruption import damage_bytes, damage_tree, spell_json
from tools.torture.victims import train_here


def prepare(folder: Path) -> Path:
    """Train the run that the note is about."""
    train_here(folder / "run")
    return folder / "run"


def attempt(original: Path, chance: random.Random, folder: Path) -> Verdict:
    """Load the runs below a folder with a damaged note; the runs in the folder must be listed."""
    root = folder / "runs"
    shutil.copytree(original, root / "here")
    note_run(root, original)
    (note,) = (root / NOTES).glob("*.json")
    data = note.read_bytes()
    if chance.random() < 0.5:
        note.write_bytes(damage_bytes(data, chance))
    else:
        tree = json.loads(data)
        if chance.random() < 0.3:
            tree["folder"] = chance.choice(
                ("", ".", "..", "\0", "a" * 5000, "/dev/null", "~", str(note), str(root / "here"))
            )
        note.write_text(spell_json(damage_tree(tree, chance), chance), "utf-8")
    folders = [run["folder"] for run in load_finished_runs(root)]
    if "here" not in folders:
        raise Defect("a damaged note hides a run that lies here")
    return "survived" if len(folders) > 1 else "refused"


ATTACKS = (Attack("note", 10_000, prepare, attempt, sample=40),)
