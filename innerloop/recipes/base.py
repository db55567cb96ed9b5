"""What a recipe is: one small file that says what is trained on what, and how.

A recipe's own parameters and those of the loop are set alike (`-s d=3 -s steps=500`). A run is a
folder: `checkpoint.safetensors` to go on from, `history.csv`, and once it is done
`model.safetensors`, which says the recipe, its settings, the seed and the versions.
"""

from __future__ import annotations

import hashlib
import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import innerloop
from innerloop import sealed
from innerloop.errors import FileError, InputError, MissingLibrary
from innerloop.problems.base import Distribution
from innerloop.registry import find, name_of
from innerloop.training.history import write_history
from innerloop.training.loop import SECONDS_BETWEEN_CHECKPOINTS, Diverged, Training, fit
from innerloop.training.objective import Objective
from innerloop.training.settings import Settings

FORMAT = "innerloop-model"
VERSION = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe(Settings, ABC):
    """A training by name. `model` and `objective` say what; the fields say how."""

    source: ClassVar[str]
    small: ClassVar[dict[str, Any]]
    """Settings with which two steps take no time; every recipe is tested with its own."""
    required: ClassVar = ("source", "small")

    @property
    def name(self) -> str:
        return name_of(type(self))

    @abstractmethod
    def model(self, generator: torch.Generator) -> nn.Module:
        """The model before its first step."""

    @abstractmethod
    def objective(self) -> Objective:
        """What is minimised."""

    @abstractmethod
    def problems(self) -> Distribution:
        """The problems that the model is to solve."""

    @abstractmethod
    def layers(self, model: nn.Module, problem: Any) -> Tensor:
        """What is predicted at the queries after each layer: layers × batch × queries."""

    def folder(self, root: Path) -> Path:
        """Where runs of this recipe with these settings go: settings of one's own have a mark."""
        values = self.values()
        if values == type(self).made({}).values():
            return root / self.name
        mark = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
        return root / f"{self.name}-{mark}"


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    recipe: Recipe
    model: nn.Module
    seed: int
    history: list[dict[str, float]]
    seconds: float
    ended: str
    folder: Path | None = None

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return self.history[-1]

    @property
    def step(self) -> int:
        return int(self.final["step"])

    def as_dict(self) -> dict[str, Any]:
        """What was measured, for machines."""
        return {
            "recipe": self.recipe.name,
            "settings": self.recipe.values(),
            "seed": self.seed,
            "steps": self.step,
            "ended": self.ended,
            "seconds": round(self.seconds, 3),
            "final": self.final,
            "folder": None if self.folder is None else str(self.folder),
        }


def train(
    recipe: str | Recipe,
    *,
    seed: int = 0,
    folder: Path | None = None,
    resume: bool = False,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    progress: Callable[[float, str], None] | None = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> Trained:
    """Train a recipe, by name with settings or as it is, in `folder` or in memory alone."""
    if isinstance(recipe, str):
        recipe = find("recipes", Recipe, recipe).made(settings)
    elif settings:
        raise InputError("settings are for a recipe that is given by name")
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    about = {"recipe": recipe.name, "settings": recipe.values(), "seed": seed}
    path = None if folder is None else prepared(folder, resume) / "checkpoint.safetensors"
    generator = torch.Generator().manual_seed(seed)
    training = Training(recipe.model(generator), recipe.objective(), recipe, seed)
    try:
        fit(training, path=path, about=about, every=every, progress=progress, notice=notice)
    except Diverged:
        if folder is not None:
            write_history(folder / "history.csv", training.history)
        raise
    if folder is not None:
        write_history(folder / "history.csv", training.history)
        _save(training, about, folder / "model.safetensors")
    return Trained(
        recipe,
        training.model,
        seed,
        training.history,
        training.seconds,
        training.ended,
        folder,
    )


def prepared(folder: Path, resume: bool) -> Path:
    """The folder, made if need be; an earlier run in it is gone on with or refused."""
    if folder.exists() and not folder.is_dir():
        raise FileError(f"cannot train into {folder}: it is not a folder")
    earlier = begun(folder)
    if earlier and not resume:
        raise FileError(
            f"{folder} holds a run already: --resume goes on with it; or remove it, or train into "
            "another folder (-o)"
        )
    if resume and not earlier:
        raise FileError(f"there is no run to resume in {folder}: train without --resume first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make {folder}: {error.strerror or error}") from None
    return folder


def begun(folder: Path) -> bool:
    """Whether a run was begun here."""
    return (folder / "checkpoint.safetensors").exists()


def _save(training: Training, about: dict[str, Any], path: Path) -> None:
    told = {
        **about,
        "ended": training.ended,
        "seconds": round(training.seconds, 3),
        "final": training.history[-1],
        "versions": {
            "innerloop": innerloop.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "command": command(about),
    }
    weights = dict(training.model.state_dict())
    sealed.write(path, weights, {"about": json.dumps(told)}, format=FORMAT, version=VERSION)


def command(about: dict[str, Any]) -> str:
    """The command line that makes this run again."""
    defaults = find("recipes", Recipe, about["recipe"]).made({}).values()
    changed = {k: v for k, v in about["settings"].items() if v != defaults[k]}
    words = [f"-s {key}={_spelled(value)}" for key, value in changed.items()]
    return " ".join(["innerloop train", about["recipe"], *words, f"--seed {about['seed']}"])


def _spelled(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, separators=(",", ":"))
    return f"'{text}'" if "[" in text else text


def load(path: Path) -> tuple[Recipe, nn.Module, dict[str, Any]]:
    """A trained model from its file: the recipe, the model, and what the file says of the run."""
    told, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        about = json.loads(told["about"])
        recipe = find("recipes", Recipe, about["recipe"]).made(about["settings"])
        model = recipe.model(torch.Generator().manual_seed(about["seed"]))
        model.load_state_dict(tensors)
    except MissingLibrary:
        raise
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise FileError(f"{path} does not hold the model it describes: {reason}") from None
    return recipe, model, about
