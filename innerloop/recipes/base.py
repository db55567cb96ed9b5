"""The base class of recipes, each one file that defines a model, its problems and its training.

A recipe's own parameters and those of the loop are set in the same way (`-s d=3 -s steps=500`). A
run is a folder: `checkpoint.safetensors` to resume from, `history.csv`, and once it is finished
`model.safetensors`, which records the recipe, its settings, the seed and the versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from innerloop import sealed
from innerloop.errors import FileError, InputError, MissingLibraryError
from innerloop.jsonfiles import parse_object
from innerloop.problems.base import Distribution
from innerloop.progress import Progress, ignore_progress
from innerloop.provenance import collect_versions, spell_command
from innerloop.registry import get_name, make_member
from innerloop.training.history import digest_history, write_history
from innerloop.training.loop import SECONDS_BETWEEN_CHECKPOINTS, DivergedError, Training, fit
from innerloop.training.objective import Objective
from innerloop.training.settings import Settings

FORMAT = "innerloop-model"
VERSION = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe(Settings, ABC):
    """A named training: methods define the model and the objective, fields are its settings."""

    source: ClassVar[str]
    small: ClassVar[dict[str, Any]]
    """Settings so small that two steps take no time; the tests run every recipe with them."""
    required: ClassVar = ("source", "small")

    @property
    def name(self) -> str:
        return get_name(type(self))

    @abstractmethod
    def build_model(self, generator: torch.Generator) -> nn.Module:
        """Build the model before its first step."""

    @abstractmethod
    def build_objective(self) -> Objective:
        """Build the objective to minimise."""

    @abstractmethod
    def build_distribution(self) -> Distribution:
        """Build the distribution of problems that the model learns to solve."""

    @abstractmethod
    def predict_layers(self, model: nn.Module, problem: Any) -> Tensor:
        """Predict at the queries after each layer: layers × batch × queries."""

    def name_folder(self, root: Path) -> Path:
        """Name the folder of this recipe's runs; non-default settings add a hash to the name."""
        values, name = self.values(), re.sub(r"[^\w.-]+", "-", self.name).strip("-.")
        if values == type(self).from_values({}).values():
            return root / name
        mark = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
        return root / f"{name}-{mark}"


@dataclass(frozen=True)
class TrainedRun:
    """A finished training run and its model."""

    recipe: Recipe
    model: nn.Module
    seed: int
    history: list[dict[str, float]]
    seconds: float
    stop_reason: str
    folder: Path | None = None

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return self.history[-1]

    @property
    def step(self) -> int:
        return int(self.final["step"])

    def as_dict(self) -> dict[str, Any]:
        """Return settings and results as JSON values."""
        return {
            "recipe": self.recipe.name,
            "settings": self.recipe.values(),
            "seed": self.seed,
            "steps": self.step,
            "ended": self.stop_reason,
            "seconds": round(self.seconds, 3),
            "final": self.final,
            "folder": None if self.folder is None else str(self.folder),
        }


def train(
    recipe: str | Recipe | type[Recipe],
    /,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    resume: bool = False,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> TrainedRun:
    """Train a recipe in `folder`, or in memory alone.

    `recipe` is a name, `module:attribute`, a class, or an object; `settings` are its parameters.
    """
    if isinstance(recipe, Recipe) and settings:
        raise InputError("settings go with a recipe's name: set them on the recipe object instead")
    made = make_member("recipes", Recipe, recipe, settings)
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    folder = None if folder is None else Path(folder)
    about = {"recipe": made.name, "settings": made.values(), "seed": seed}
    path = None if folder is None else prepare_folder(folder, resume) / "checkpoint.safetensors"
    generator = torch.Generator().manual_seed(seed)
    training = Training(made.build_model(generator), made.build_objective(), made, seed)
    try:
        fit(training, path=path, about=about, every=every, progress=progress, notice=notice)
    except DivergedError:
        if folder is not None:
            write_history(folder / "history.csv", training.history)
        raise
    if folder is not None:
        write_history(folder / "history.csv", training.history)
        _save_model(training, made, about, folder / "model.safetensors")
    return TrainedRun(
        made,
        training.model,
        seed,
        training.history,
        training.seconds,
        training.stop_reason,
        folder,
    )


def train_seeds(
    recipe: Recipe,
    seeds: Sequence[int],
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress = ignore_progress,
    notice: Callable[[str], None] | None = None,
) -> list[TrainedRun]:
    """Train a recipe once per seed, each in a folder of its own; resume those that were begun."""
    if not seeds:
        raise InputError(f"seeds must be at least 1, got {len(seeds)}")
    runs = []
    for done, seed in enumerate(seeds):
        place = folder / f"seed-{seed}"

        def report(share: float, doing: str = "", done: int = done, seed: int = seed) -> None:
            progress((done + share) / len(seeds), f"seed {seed}, {doing}")

        begun = resume and (len(seeds) == 1 or has_run(place))
        runs.append(
            train(recipe, seed=seed, folder=place, resume=begun, progress=report, notice=notice)
        )
    return runs


def prepare_folder(folder: Path, resume: bool) -> Path:
    """Create the folder of a run; an earlier run in it is an error unless `resume` is set."""
    if folder.exists() and not folder.is_dir():
        raise FileError(f"cannot train into {folder}: it is not a folder")
    earlier = has_run(folder)
    if earlier and not resume:
        raise FileError(
            f"{folder} holds a run already: continue it with --resume, remove it, or train into "
            "another folder (-o)"
        )
    if resume and not earlier:
        raise FileError(f"there is no run to resume in {folder}: train without --resume first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make {folder}: {error.strerror or error}") from None
    return folder


def has_run(folder: Path) -> bool:
    """Whether the folder holds a checkpoint of a run."""
    return (folder / "checkpoint.safetensors").exists()


def _save_model(training: Training, recipe: Recipe, about: dict[str, Any], path: Path) -> None:
    description = {
        **about,
        "ended": training.stop_reason,
        "seconds": round(training.seconds, 3),
        "final": training.history[-1],
        "history_sha256": digest_history(training.history),
        "versions": collect_versions(),
        "command": format_command(recipe, about["seed"]),
    }
    weights = dict(training.model.state_dict())
    sealed.write(path, weights, {"about": json.dumps(description)}, format=FORMAT, version=VERSION)


def format_command(recipe: Recipe, seed: int) -> str:
    """Format the command line that repeats this run."""
    defaults = type(recipe).from_values({}).values()
    return spell_command("train", recipe.name, recipe.values(), defaults, {"seed": seed})


def load(path: Path, definition: Any = None) -> tuple[Recipe, nn.Module, dict[str, Any]]:
    """Load a trained model from its file: the recipe, the model, and the run's description.

    A file names its recipe. Code is never loaded because a file says so: a recipe that is neither
    in this package nor registered must be given as `definition`.
    """
    metadata, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        about = parse_object(metadata["about"])
        name = about["recipe"]
        if definition is None and ":" in name:
            raise FileError(
                f"it was trained by {name!r}, a user-defined recipe: pass it, as "
                f"--definition {name} (it will be imported and run)"
            )
        recipe = make_member("recipes", Recipe, definition or name, about["settings"])
        model = recipe.build_model(torch.Generator().manual_seed(about["seed"]))
        model.load_state_dict(tensors)
    except MissingLibraryError:
        raise
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise FileError(f"{path} does not hold the model it describes: {reason}") from None
    return recipe, model, about
