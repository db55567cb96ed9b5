"""List runs, finished or not, with their state, last loss and duration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from innerloop.errors import FileError, InputError
from innerloop.jsonfiles import read_object
from innerloop.links import refuse_links_inside, resolve_links
from innerloop.recipes.run_file import RUN_FILE
from innerloop.recipes.runs import DamageListener, find_folders, read_description
from innerloop.training import checkpoint
from innerloop.training.folder import CHECKPOINT, HISTORY, MODEL, is_locked
from innerloop.training.history import read_history
from innerloop.training.restoring import is_number

SIGNS = (RUN_FILE, CHECKPOINT, MODEL)
"""Files that mark a folder as a run; runs of older versions lack the first one."""
MAX_LABEL = 60
"""Largest number of characters of a setting in the label of a run."""


def list_runs(
    root: Path, notice: DamageListener = lambda place, reason: None
) -> Iterator[dict[str, Any]]:
    """Yield a description of every run below `root`, and of the runs to which notes there point."""
    for folder, place in find_folders(resolve_links(root), SIGNS, notice):
        yield {**describe_folder(folder), "folder": place}


def describe_folder(folder: Path) -> dict[str, Any]:
    """Return a description of the run in a folder: its state, last step, loss and duration."""
    known: dict[str, Any] = {"recipe": "", "seed": None, "state": "damaged", "remark": ""}
    numbers: dict[str, Any] = dict.fromkeys(("step", "steps", "loss", "seconds"))
    try:
        refuse_links_inside(folder)
        about = _read_about(folder)
        settings = about.get("settings")
        if not isinstance(about.get("recipe"), str) or not isinstance(settings, dict):
            raise FileError("it does not contain the name of a recipe")
        ended, remark = about.get("ended"), about.get("remark", "")
        known |= {"recipe": about["recipe"], "seed": about.get("seed"), "remark": str(remark or "")}
        known |= {"state": _find_state(folder, ended), "ended": ended}
        numbers["steps"] = settings.get("steps")
        if (folder / HISTORY).exists():
            last = read_history(folder / HISTORY, growing=True)[-1]
            numbers |= {name: last.get(name) for name in ("step", "loss", "seconds")}
    except (InputError, OSError) as error:
        known |= {"state": "damaged", "remark": str(error).partition("\n")[0]}
    return {**known, **{k: v if is_number(v) else None for k, v in numbers.items()}}


def _find_state(folder: Path, ended: Any) -> str:
    if is_locked(folder):
        return "running"
    if ended == "diverged":
        return "diverged"
    return "finished" if ended and (folder / MODEL).exists() else "stopped"


def _read_about(folder: Path) -> dict[str, Any]:
    """Read a run's description from `run.json`, or from the files of older versions."""
    if (folder / RUN_FILE).exists():
        return read_object(folder / RUN_FILE)
    if (folder / MODEL).exists():
        return read_description(folder / MODEL)
    return checkpoint.read(folder / CHECKPOINT)[0]


def load_curves(places: Iterable[Path]) -> list[dict[str, Any]]:
    """Load the history of the run in each folder, or the histories of all runs below it.

    Each history has a `name`, and a `group` that is equal for runs that differ only in the seed.
    """
    curves: dict[Path, dict[str, Any]] = {}
    for place in map(resolve_links, places):
        tables = [place / HISTORY] if (place / HISTORY).exists() else place.glob(f"**/{HISTORY}")
        listed = sorted(tables)
        if not listed:
            what = f"no {HISTORY} in it or below it" if place.exists() else "it does not exist"
            raise FileError(f"{place} contains no run: {what}")
        for table in listed:
            history = read_history(table, growing=not (table.parent / MODEL).exists())
            curves[table.parent.resolve()] = {"folder": table.parent, "history": history}
    runs = list(curves.values())
    labels = _label_by_settings([run["folder"] for run in runs])
    for run, name, label in zip(runs, _name_by_folder(list(curves)), labels, strict=True):
        group = "/".join(name[:-1]) if name[-1].startswith("seed-") and name[1:] else "/".join(name)
        run |= {"name": "/".join(name), "group": label or group}
    return runs


def _name_by_folder(folders: list[Path]) -> list[tuple[str, ...]]:
    """Return names of runs: the parts of their paths that differ, and their seeds."""
    parts = [folder.parts for folder in folders]
    shared = min(len(own) - (2 if own[-1].startswith("seed-") else 1) for own in parts)
    while len({own[:shared] for own in parts}) > 1:
        shared -= 1
    return [own[shared:] for own in parts]


def _label_by_settings(folders: list[Path]) -> list[str]:
    """Return labels of runs: the settings in which they differ, or "" if they are unknown."""
    try:
        abouts = [_read_about(folder) for folder in folders]
        tables = [{"recipe": about["recipe"], **about["settings"]} for about in abouts]
    except (InputError, OSError, KeyError, TypeError):
        return [""] * len(folders)
    names = dict.fromkeys(name for table in tables for name in table)
    differing = [n for n in names if len({repr(table.get(n)) for table in tables}) > 1]
    return [", ".join(f"{n}={table.get(n)}"[:MAX_LABEL] for n in differing) for table in tables]
