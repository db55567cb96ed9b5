"""Models that were trained before, from their files below `results/` in the repository."""

from __future__ import annotations

from pathlib import Path

import innerloop
from innerloop.recipes.base import Trained, load
from innerloop.training.history import read_history

RESULTS = Path(innerloop.__file__).parents[1] / "results"


def recorded(folder: str, name: str) -> Trained:
    """The model `results/folder/name.safetensors`."""
    path = _path(folder, name)
    recipe, model, about = load(path)
    history = read_history(path.with_suffix(".csv"))
    return Trained(recipe, model.eval(), about["seed"], history, about["seconds"], about["ended"])


def has_results(folder: str) -> bool:
    """Whether any are there: an installed package comes without its results."""
    return (RESULTS / folder).is_dir()


def is_recorded(folder: str, name: str) -> bool:
    """Whether it is there."""
    return _path(folder, name).exists()


def files(name: str) -> list[Path]:
    """All models of this name, whatever folder they are in."""
    paths = (folder / f"{name}.safetensors" for folder in RESULTS.glob("*") if "/" not in name)
    return [path for path in paths if path.is_file()]


def _path(folder: str, name: str) -> Path:
    return RESULTS / folder / f"{name}.safetensors"
