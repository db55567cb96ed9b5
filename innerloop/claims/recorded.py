"""Load models that were trained before and are recorded with the package.

A claim that names a recorded model needs it: where it is missing, that is an error, never another
comparison under the same id.
"""

from __future__ import annotations

from pathlib import Path

from innerloop.errors import FileError
from innerloop.recipes.base import TrainedRun, load
from innerloop.results import find_recorded
from innerloop.training.history import read_history

RESULTS = find_recorded()


def load_recorded(folder: str, name: str) -> TrainedRun:
    """Load the recorded model `folder/name.safetensors`."""
    path = RESULTS / folder / f"{name}.safetensors"
    if not path.is_file():
        raise FileError(
            f"the recorded weights {folder}/{name}.safetensors are not here (looked in {RESULTS}): "
            "install innerloop whole, or run from a checkout"
        )
    recipe, model, about = load(path)
    history = read_history(path.with_suffix(".csv"))
    return TrainedRun(
        recipe, model.eval(), about["seed"], history, about["seconds"], about["ended"]
    )


def find_recorded_files(name: str) -> list[Path]:
    """Find all recorded models of this name, whatever folder they are in."""
    paths = (folder / f"{name}.safetensors" for folder in RESULTS.glob("*") if "/" not in name)
    return [path for path in paths if path.is_file()]
