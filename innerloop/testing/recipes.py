"""Check that every recipe trains, stops, resumes, saves and loads with its small settings."""

from __future__ import annotations

import inspect
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.identification.families.games import draw_instances
from innerloop.recipes.base import Recipe, TrainedRun, load, train
from innerloop.testing.common import check_described, require


def check_recipe(recipe: Recipe | type[Recipe]) -> None:
    """Check two training steps: the files load again, and equal seeds give equal runs.

    Args:
        recipe: A class, which is checked with its `small` settings, or an object.

    Raises:
        AssertionError: A property does not hold. The message states the mistake and how to correct
            it.
    """
    check_described(recipe)
    kind = recipe if inspect.isclass(recipe) else type(recipe)
    settings = {"steps": 2, "evaluate_every": 1, **kind.small}
    settings |= {"warmup": 0} if "warmup" not in kind.small else {}
    made = kind.from_values(settings) if inspect.isclass(recipe) else recipe
    name = made.name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        trained = train(made, seed=1, folder=path)
        with _follow_inputs(name):
            again = _train_in_two_parts(made, Path(folder) / "parts")
        require(
            all(math.isfinite(row["loss"]) for row in trained.history),
            f"{name}: the loss is not finite after {trained.step} steps",
        )
        _require_same(
            trained.model,
            again.model,
            f"{name}: a run that is stopped and resumed must have the same weights as an "
            "uninterrupted run",
        )
        loaded, model, about = load(path / "model.safetensors", kind)
        require(
            loaded.values() == made.values(),
            f"{name}: the settings in the file differ from those of the run",
        )
        _require_same(
            model, trained.model, f"{name}: the weights in the file differ from those of the run"
        )
        require(
            about["final"] == trained.history[-1],
            f"{name}: the history in the file differs from that of the run",
        )
        fresh = made.build_model(torch.Generator().manual_seed(1))
        differ = _differ(fresh, trained.model)
        require(differ, f"{name}: two steps of training change no weight")
        _check_predictions(made, model)


@contextmanager
def _follow_inputs(name: str) -> Iterator[None]:
    """Check that new tensors are created on the device of their input.

    The default device is set to `meta`, which stores no numbers. Code that creates a tensor without
    a device then fails. Code that passes also runs on a GPU.
    """
    torch.set_default_device("meta")
    try:
        yield
    except (NotImplementedError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        require(False, f"{name}: a tensor is not on the device of its input ({reason})")
    finally:
        torch.set_default_device(None)


class _Stop(Exception):
    """An exception that stops a training after some steps."""


def _train_in_two_parts(recipe: Recipe, folder: Path) -> TrainedRun:
    """Train one step, stop, and resume with the settings that the run stores."""

    def stop(share: float, doing: str = "") -> None:
        raise _Stop

    with suppress(_Stop):
        train(recipe, seed=1, folder=folder, every=0, progress=stop)
    return train(type(recipe), seed=1, folder=folder, resume=True)


def _check_predictions(recipe: Recipe, model: nn.Module) -> None:
    """Check that the predictions of each layer have the right shape and are finite."""
    name = recipe.name
    dtype = next(model.parameters()).dtype
    generator = torch.Generator().manual_seed(0)
    problem: Any = draw_instances(recipe.build_distribution(), 3, generator).to(dtype)
    with torch.no_grad(), _follow_inputs(name):
        layers = recipe.predict_layers(model, problem)
    require(
        layers.ndim >= 3 and layers.shape[1] == 3,
        f"{name}: predict_layers must give layers × batch × queries, or what else an answer has, "
        f"got {tuple(layers.shape)}",
    )
    require(bool(torch.isfinite(layers).all()), f"{name}: predictions are not finite")


def _require_same(one: nn.Module, other: nn.Module, message: str) -> None:
    require(not _differ(one, other), message)


def _differ(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two modules have different weights."""
    first, second = one.state_dict(), other.state_dict()
    if first.keys() != second.keys():
        return True
    return not all(torch.equal(first[key], second[key]) for key in first)
