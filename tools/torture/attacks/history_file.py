"""Corrupted histories of runs: the report draws them beside those of other runs."""

from __future__ import annotations

import csv
import io
import math
import random
import shutil
from pathlib import Path
from typing import Any

from innerloop.recipes.runs import load_finished_runs
from innerloop.report.figures import plot_training_curves
from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.corruption import damage_bytes, damage_text
from tools.torture.victims import train_here


def prepare(folder: Path) -> Path:
    """Train the run whose history is damaged."""
    train_here(folder / "run")
    return folder / "run"


def attempt(original: Path, chance: random.Random, folder: Path) -> Verdict:
    """Load and draw two runs, one with a damaged history: the other is there as it was.

    The damaged one is said to be damaged, or has rows that a reader of the file would find too: a
    digit that changed leaves no trace in it.
    """
    for name in ("good", "bad"):
        shutil.copytree(original, folder / name)
    path = folder / "bad" / "history.csv"
    data = path.read_bytes()
    if chance.random() < 0.5:
        path.write_bytes(damage_bytes(data, chance))
    else:
        path.write_text(damage_text(data.decode(), chance), "utf-8")
    runs = {run["folder"]: run for run in load_finished_runs(folder)}
    if "good" not in runs:
        raise Defect("a damaged history hides another run")
    draw_runs(list(runs.values()))
    if is_reported_damaged(runs.get("bad")):
        return "refused"
    check_rows(path, runs["bad"]["history"], runs["good"]["history"])
    return "survived"


def is_reported_damaged(run: dict[str, Any] | None) -> bool:
    """Whether a run is said to be damaged; one that is left out without a word is a defect."""
    if run is None:
        raise Defect("a run with a damaged history is left out without a word")
    return bool(run.get("damage"))


def check_rows(path: Path, rows: list[dict[str, float]], whole: list[dict[str, float]]) -> None:
    """Check that rows which are drawn as whole are: as many as there were, of finite numbers."""
    if len(rows) != len(whole):
        raise Defect(f"a history of {len(rows)} rows, not {len(whole)}, is drawn without a word")
    if any(not math.isfinite(value) for row in rows for value in row.values()):
        raise Defect("a history with numbers that are not finite is drawn without a word")
    table = csv.DictReader(io.StringIO(path.read_text("utf-8")))
    if len(list(table)) != len(rows):
        raise Defect("a history is drawn with other rows than its file has")


def draw_runs(runs: list[dict[str, Any]]) -> None:
    """Draw the curves of runs as the report does."""
    plot_training_curves(runs).to_dict()


ATTACKS = (Attack("history", 10_000, prepare, attempt, sample=20),)
