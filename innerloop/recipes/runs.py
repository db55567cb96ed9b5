"""Training runs on disk: where they are, wherever they were made, and the finished ones' results.

A run in a folder of the user's choice (`train -o`) leaves a note among the results, so that a
report knows it; a note whose run is gone is passed over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from innerloop import sealed
from innerloop.errors import FileError, InputError
from innerloop.files import write_atomically
from innerloop.recipes.base import FORMAT, VERSION
from innerloop.training.history import read_history

MODEL = "model.safetensors"
NOTES = "elsewhere"
"""The folder of notes about runs that are kept in other places."""


def note_run(root: Path, folder: Path) -> None:
    """Leave a note below `root` that there is a run in `folder`, unless it lies there itself."""
    whole = folder.resolve()
    if whole.is_relative_to(root.resolve()):
        return
    notes = root / NOTES
    try:
        notes.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make {notes}: {error.strerror or error}") from None
    name = hashlib.sha256(str(whole).encode()).hexdigest()[:16]
    write_atomically(notes / f"{name}.json", json.dumps({"folder": str(whole)}).encode())


def find_model(path: Path) -> Path:
    """Find the model file of a run: in the folder itself, or in its one `seed-…` folder."""
    if not path.is_dir() or (path / MODEL).is_file():
        return path / MODEL if path.is_dir() else path
    seeds = sorted(model.parent for model in path.glob(f"seed-*/{MODEL}"))
    if len(seeds) == 1:
        return seeds[0] / MODEL
    if seeds:
        raise InputError(f"{path} holds {len(seeds)} runs: name one, such as {seeds[0]}")
    raise FileError(f"{path} holds no finished run: no {MODEL} in it")


def load_finished_runs(root: Path) -> Iterator[dict[str, Any]]:
    """Load every finished run under `root` and noted there: its description and its history."""
    for folder, shown in sorted(_list_folders(root)):
        for path in sorted(folder.glob(f"**/{MODEL}")):
            metadata, _ = sealed.read(path, format=FORMAT, version=VERSION)
            about = json.loads(metadata["about"])
            history = read_history(path.parent / "history.csv")
            place = shown / path.parent.relative_to(folder)
            yield {**about, "folder": str(place), "history": history}


def _list_folders(root: Path) -> Iterator[tuple[Path, Path]]:
    """List the folders of runs, and how each is shown: runs elsewhere by their whole path."""
    yield root, Path()
    for note in root.glob(f"{NOTES}/*.json"):
        try:
            folder = Path(json.loads(note.read_text("utf-8"))["folder"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged note is no run; the run itself is where it was
        if folder.is_dir():
            yield folder, folder
