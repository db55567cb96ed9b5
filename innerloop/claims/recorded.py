"""Load models that were trained before and are recorded with the package.

A claim that names a recorded model needs it: where it is missing, that is an error, never another
comparison under the same id. Every recorded model has a description, `name.json`; weights of seeds
other than 0, and in an installed package all that `quick` does not use, are left out for their
size. The error then has the command that makes them, in the folder where they are looked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.jsonfiles import read_object
from innerloop.links import read_file, resolve_links
from innerloop.recipes.base import TrainedRun, load
from innerloop.results import find_recorded, find_results
from innerloop.training.folder import MODEL
from innerloop.training.history import read_history

RESULTS = find_recorded()


def name_seeds(name: str, seeds: int) -> list[str]:
    """Name the recorded trainings of one model from seed 0 on: `name`, `name-seed-1`, …."""
    return [name, *(f"{name}-seed-{seed}" for seed in range(1, seeds))]


def name_trainings(names: Sequence[str], seeds: int) -> list[list[str]]:
    """Name the recorded trainings of several models, one list for each seed."""
    return [list(each) for each in zip(*(name_seeds(name, seeds) for name in names), strict=True)]


def load_recorded(folder: str, name: str) -> TrainedRun:
    """Load the recorded model `folder/name`: its file, or what its command made here."""
    path, about = _find_weights(folder, name), _read_description(folder, name)
    if path is None:
        raise FileError(
            f"the recorded weights {folder}/{name}.safetensors are not here (looked in {RESULTS}): "
            + (
                f"make them with {about['command']} -o {_name_run(folder, name)}"
                if "command" in about
                else "install innerloop whole, or run from a checkout"
            )
        )
    recipe, model, made = load(_resolve(path))
    if path.name == MODEL and made.get("command") != about.get("command", made.get("command")):
        raise FileError(f"{path} is another training than {folder}/{name}: {about['command']}")
    table = path.with_name("history.csv") if path.name == MODEL else path.with_suffix(".csv")
    history = read_history(_resolve(table))
    return TrainedRun(recipe, model.eval(), made["seed"], history, made["seconds"], made["ended"])


def digest_recorded(name: str) -> dict[str, str]:
    """Digest all recorded weights of this name, by folder: those here, else those described."""
    found = {}
    for place in RESULTS.glob("*") if "/" not in name else ():
        if path := _find_weights(place.name, name):
            found[place.name] = hashlib.sha256(read_file(_resolve(path))).hexdigest()
        elif described := _read_description(place.name, name).get("weights_sha256"):
            found[place.name] = str(described)
    return found


def _find_weights(folder: str, name: str) -> Path | None:
    run = _name_run(folder, name)
    made = [run / MODEL, *sorted(run.glob(f"seed-*/{MODEL}"))]
    places = [RESULTS / folder / f"{name}.safetensors", *made]
    return next((path for path in places if path.is_file()), None)


def _name_run(folder: str, name: str) -> Path:
    """Name the folder in which a training that is made again here is looked for."""
    return resolve_links(find_results() / folder) / name


def _resolve(path: Path) -> Path:
    """Replace links in the path of a file of the package; a link in a run's folder stays."""
    return resolve_links(path) if path.parents[1] == RESULTS else path


def _read_description(folder: str, name: str) -> dict[str, Any]:
    path = RESULTS / folder / f"{name}.json"
    return read_object(resolve_links(path)) if path.is_file() else {}
