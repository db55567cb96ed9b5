"""Find training runs on disk, in all folders, and load the results of finished runs.

A run in a folder of the user's choice (`train -o`) writes a note among the results, so that reports
can find it. Notes of deleted runs are ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from innerloop import sealed
from innerloop.errors import FileError, InputError
from innerloop.files import write_atomically
from innerloop.jsonfiles import parse_object, read_object
from innerloop.links import make_folder, refuse_links_inside, resolve_links
from innerloop.recipes.base import FORMAT, VERSION
from innerloop.training.folder import HISTORY, MODEL
from innerloop.training.history import read_history

NOTES = "elsewhere"
"""Folder of the notes that point to runs in other folders."""
MAX_STEPS = 2**63
"""Largest number of steps that is accepted in a run's description."""

DamageListener = Callable[[str, str], None]
"""Function that is called with the folder of an unreadable run and the reason."""


def note_run(root: Path, folder: Path) -> None:
    """Write a note below `root` that points to the run in `folder`, unless it is below `root`."""
    whole = folder.resolve()
    if whole.is_relative_to(root.resolve()):
        return
    notes = resolve_links(root) / NOTES
    try:
        make_folder(notes)
    except OSError as error:
        raise FileError(f"cannot make {notes}: {error.strerror or error}") from None
    name = hashlib.sha256(os.fsencode(whole)).hexdigest()[:16]
    write_atomically(notes / f"{name}.json", json.dumps({"folder": str(whole)}).encode())


def find_model(path: Path) -> Path:
    """Find the model file of a run: in the folder itself, or in its one `seed-…` folder.

    Symbolic links in the user's path are resolved first; no other link is followed.
    """
    path = resolve_links(path)
    if not path.is_dir():
        return path
    if (path / MODEL).is_file():
        return path / MODEL
    seeds = sorted(model.parent for model in path.glob(f"seed-*/{MODEL}"))
    if len(seeds) == 1:
        return seeds[0] / MODEL
    if seeds:
        raise InputError(f"{path} contains {len(seeds)} runs: name one, such as {seeds[0]}")
    raise FileError(f"{path} contains no finished run: it has no file {MODEL}")


def load_finished_runs(
    root: Path, notice: DamageListener = lambda place, reason: None
) -> Iterator[dict[str, Any]]:
    """Yield description and history of every finished run below `root`, or noted there.

    Runs that are damaged or not from this package are skipped and reported to `notice`.
    """
    for folder, place in find_folders(resolve_links(root), [MODEL], notice):
        try:
            yield {**_load_run(folder / MODEL), "folder": place}
        except Exception as error:  # a damaged file must not prevent loading the others
            reason = str(error).partition("\n")[0]
            known = isinstance(error, FileError)
            notice(place, reason if known else f"{type(error).__name__}: {reason}")


def read_description(path: Path) -> dict[str, Any]:
    """Read the description of the run from a model file."""
    metadata, _ = sealed.read(path, format=FORMAT, version=VERSION)
    if "about" not in metadata:
        raise FileError(f"{path} is damaged: it does not contain the name of a recipe")
    try:
        about = parse_object(metadata["about"])
        _check_description(about)
    except FileError as error:
        raise FileError(f"{path} is damaged: {error}") from None
    return about


def _load_run(path: Path) -> dict[str, Any]:
    refuse_links_inside(path.parent)
    about = read_description(path)
    table = path.parent / HISTORY
    history = read_history(table, about.get("history_sha256"))
    last, final = history[-1], about["final"]
    if any(repr(last.get(name)) != repr(float(final[name])) for name in ("step", "loss")):
        raise FileError(
            f"{table} is damaged: it ends at step {last['step']:g} with loss {last['loss']:g}, the "
            f"run at step {final['step']} with loss {final['loss']:g}"
        )
    return {**about, "history": history}


def _check_description(about: dict[str, Any]) -> None:
    """Raise `FileError` if an entry of a run's description is missing or has a wrong type."""
    for name, kind in (("recipe", str), ("command", str), ("settings", dict), ("final", dict)):
        if not isinstance(about.get(name), kind):
            actual = f"{about.get(name)!r:.60}"
            raise FileError(f"its {name} must be of type {kind.__name__}, got {actual}")
    seconds, final = about.get("seconds"), about["final"]
    numbers = {"seconds": seconds, **{f"final {name}": final.get(name) for name in final}}
    for name in ("seconds", "final step", "final loss"):
        value = numbers.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FileError(f"its {name} must be a number, got {value!r:.60}")
        if not (abs(value) < MAX_STEPS if name != "final loss" else math.isfinite(value)):
            raise FileError(f"its {name} is out of range: {value!r:.60}")
    if not isinstance(final["step"], int):
        raise FileError(f"its final step must be a whole number, got {final['step']!r}")


def find_folders(
    root: Path, signs: Iterable[str], notice: DamageListener
) -> Iterator[tuple[Path, str]]:
    """Yield the folders that contain one of these files, each with its path for display."""
    signs = tuple(signs)
    for folder in sorted({path.parent for sign in signs for path in root.glob(f"**/{sign}")}):
        yield folder, str(folder.relative_to(root))
    for note in sorted(root.glob(f"{NOTES}/*.json")):
        try:
            place = Path(read_object(note)["folder"])
            # Not `**`, because a note could make the search read a whole disk.
            patterns = [f"{depth}{sign}" for sign in signs for depth in ("", "*/", "*/*/")]
            folders = sorted({path.parent for each in patterns for path in place.glob(each)})
        except (OSError, FileError, KeyError, TypeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            notice(str(note.relative_to(root)), f"the note is damaged: {reason}")
            continue
        for folder in folders:
            yield folder, str(folder)
