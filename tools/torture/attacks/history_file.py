"""Damaged histories of runs: the report draws them beside those of other runs."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from innerloop.recipes.runs import load_finished_runs
from innerloop.report.figures import plot_training_curves
from innerloop.training.history import read_history
from tools.torture.attack import Attack, Defect, Verdict, check_message
from tools.torture.corruption import damage_bytes, damage_text
from tools.torture.victims import train_here


def prepare(folder: Path) -> Path:
    """Train the run whose history is damaged."""
    train_here(folder / "run")
    return folder / "run"


def attempt(original: Path, chance: random.Random, folder: Path) -> Verdict:
    """Load and draw two runs, one with a damaged history.

    The report must name the damaged history and draw the other run.
    """
    for name in ("good", "bad"):
        shutil.copytree(original, folder / name)
    path = folder / "bad" / "history.csv"
    data = path.read_bytes()
    if chance.random() < 0.5:
        path.write_bytes(damage_bytes(data, chance))
    else:
        path.write_text(damage_text(data.decode(), chance), "utf-8")
    if list_runs(folder, "history").get("bad", {}).get("history") is None:
        return "refused"
    if path.read_bytes() != data:
        check_rows(*(read_history(folder / name / "history.csv") for name in ("bad", "good")))
    return "survived"


def list_runs(folder: Path, what: str) -> dict[str, dict[str, Any]]:
    """Load and draw the runs `good` and `bad`.

    The good run, and the bad run or a reason, must appear.
    """
    damaged: dict[str, str] = {}
    runs = {run["folder"]: run for run in load_finished_runs(folder, damaged.__setitem__)}
    if "good" not in runs:
        raise Defect(f"a damaged {what} hides another run")
    if "bad" not in {**runs, **damaged}:
        raise Defect(f"a run with a damaged {what} is left out without a word")
    for reason in damaged.values():
        check_message(reason)
    plot_training_curves(list(runs.values())).to_dict()
    return runs


def check_rows(rows: list[dict[str, float]], whole: list[dict[str, float]]) -> None:
    """Check that the rows of a run that is drawn as undamaged are valid."""
    if rows != whole:
        raise Defect("a history that was changed is drawn without a word")


ATTACKS = (Attack("history", 10_000, prepare, attempt, sample=20),)
