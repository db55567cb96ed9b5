"""Changed files of runs with a correct checksum are rejected with one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import resealed
import torch

from innerloop import sealed
from innerloop.errors import FileError, InputError
from innerloop.recipes.base import load, train
from innerloop.recipes.linear_attention import LinearAttentionRecipe
from innerloop.recipes.linear_regression import LinearRegressionRecipe

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}
CASES = [
    (LinearRegressionRecipe, SMALL),
    (LinearRegressionRecipe, {**SMALL, "optimizer": "sgd", "momentum": 0.9, "patience": 9}),
    (LinearAttentionRecipe, {**SMALL, "optimizer": "lbfgs", "redraw": 0, "clip": None}),
]
CHECKPOINT = "checkpoint.safetensors"


class Stop(Exception):
    """Raised by a progress callback to leave a training in the middle."""


def stop(share: float, doing: str = "") -> None:
    if share >= 0.5:
        raise Stop


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, dict[str, Any], Path]]:
    """Recipe, settings, and a folder with a run stopped halfway and its model, for each case."""
    made = []
    for k, (recipe, settings) in enumerate(CASES):
        folder = tmp_path_factory.mktemp(f"run-{k}")
        with pytest.raises(Stop):
            train(recipe, folder=folder, every=0, progress=stop, **settings)
        train(recipe, folder=folder / "whole", **settings)
        made.append((recipe, settings, folder))
    return made


def copy_changed(runs: Any, target: Path, change: Callable[[Any, Any], None], case: int = 0) -> Any:
    """Copy a checkpoint with its unpacked metadata and tensors changed; returns its training."""
    recipe, settings, folder = runs[case]
    metadata, tensors = resealed.read_parts(folder / CHECKPOINT)
    trees = {key: json.loads(metadata[key]) for key in ("about", "state")}
    change(trees, tensors)
    target.mkdir(exist_ok=True)
    changed = {**metadata, **{key: json.dumps(tree) for key, tree in trees.items()}}
    resealed.reseal(target / CHECKPOINT, changed, tensors)
    return lambda: train(recipe, folder=target, resume=True, **settings)


def find(tree: Any, *trail: Any) -> Any:
    """Find a value of a packed state by the keys of its dictionaries."""
    for name in trail:
        tree = next(value for key, value in tree["items"] if key == name)
    return tree


def put(tree: Any, *trail: Any, value: Any) -> None:
    for pair in find(tree, *trail[:-1])["items"]:
        if pair[0] == trail[-1]:
            pair[1] = value


@pytest.mark.parametrize("value", [torch.zeros(1), torch.zeros(()), torch.zeros(0), None])
def test_an_optimiser_state_of_another_shape_is_an_error(
    runs: Any, tmp_path: Path, value: torch.Tensor | None
) -> None:
    """The fused kernel trusts its shape and would write beyond its memory."""

    def change(trees: Any, tensors: Any) -> None:
        slots = find(trees["state"], "optimizer", "state", 0)
        name = find(slots, "exp_avg_sq")["tensor"]
        del tensors[name]
        if value is None:
            put(slots, "exp_avg_sq", value=None)
        else:
            tensors[name] = value

    with pytest.raises(FileError, match="the optimiser's 'exp_avg_sq'"):
        copy_changed(runs, tmp_path, change)()


@pytest.mark.parametrize(
    ("trail", "value", "message"),
    [
        (("step",), 7, "its step must be a whole number up to steps=6, got 7"),
        (("step",), -1, "its step must be"),
        (("step",), 2.0, "its step must be"),
        (("step",), True, "its step must be"),
        (("seconds",), float("nan"), "its seconds must be"),
        (("last",), float("inf"), "its last loss"),
        (("ended",), "steps", "it ended by ''"),
        (("history",), {"list": []}, "its history must have 2 rows after 2 steps"),
        (("random", "torch"), None, "random states"),
        (
            ("optimizer", "state"),
            {"items": [[99, {"items": []}]]},
            "state of a weight",
        ),
        (("model",), {"items": []}, "is missing"),
        (("model",), 3, "its weights have no names"),
        (("random",), {"items": []}, "no random states"),
    ],
)
def test_counters_and_states_out_of_range_are_errors(
    runs: Any, tmp_path: Path, trail: tuple[Any, ...], value: Any, message: str
) -> None:
    def change(trees: Any, tensors: Any) -> None:
        put(trees["state"], *trail, value=value)
        used = {name for name in tensors if f'"{name}"' in json.dumps(trees["state"])}
        for name in tensors.keys() - used:
            del tensors[name]

    with pytest.raises(FileError, match=message):
        copy_changed(runs, tmp_path, change)()


def test_an_invalid_file_does_not_change_generators(runs: Any, tmp_path: Path) -> None:
    """NumPy takes any position and would read beyond its state."""

    def change(trees: Any, tensors: Any) -> None:
        find(trees["state"], "random", "numpy")["list"][2] = 10**6

    with pytest.raises(FileError, match="random states are not valid states of generators"):
        copy_changed(runs, tmp_path, change)()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_infinite_weights_are_an_error(runs: Any, tmp_path: Path, number: float) -> None:
    folder = runs[0][2] / "whole"
    metadata, tensors = resealed.read_parts(folder / "model.safetensors")
    name = next(name for name in tensors if tensors[name].is_floating_point())
    tensors[name].view(-1)[0] = number
    resealed.reseal(tmp_path / "model.safetensors", metadata, tensors)
    with pytest.raises(FileError, match=f"weight {name} is not finite"):
        load(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d": 10**9}, "d must be at most 64"),
        ({"hidden": 4096, "blocks": 64, "heads": 64, "d": 64}, "ask for a model of more than"),
        ({"blocks": 2.0}, "blocks must be a whole number"),
        ({"n": 5}, ""),
    ],
)
def test_a_file_cannot_request_much_more_memory_than_its_size(
    runs: Any, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    metadata, tensors = resealed.read_parts(runs[0][2] / "whole" / "model.safetensors")
    about = json.loads(metadata["about"])
    about["settings"] |= settings
    path = tmp_path / "model.safetensors"
    resealed.reseal(path, {**metadata, "about": json.dumps(about)}, tensors)
    if message:
        with pytest.raises(FileError, match=message):
            load(path)
    else:
        load(path)


def test_a_memory_request_fails_before_allocation() -> None:
    from innerloop.training.memory import limit_allocations

    huge = 10**15  # bytes that no machine has: taking them would be another error
    made: list[Callable[[], torch.Tensor]] = [
        lambda: torch.empty(huge),
        lambda: torch.zeros(10**8, 10**7),
        lambda: torch.eye(10**8),
        lambda: torch.ones(1).new_zeros(huge),
        lambda: torch.arange(huge),
    ]
    for make in made:
        refused = pytest.raises(InputError, match="ask for a model of more than 1 MB")
        with refused, limit_allocations(2**20):
            make()
    with limit_allocations(2**20):
        assert torch.ones(1000).expand(10**6, 1000).shape == (10**6, 1000), "views take nothing"
        assert int(torch.randint(2**31, ())) < 2**31


def test_a_version_of_five_thousand_digits_is_an_error(runs: Any, tmp_path: Path) -> None:
    metadata, tensors = resealed.read_parts(runs[0][2] / CHECKPOINT)
    resealed.reseal(tmp_path / "c", {**metadata, "version": "9" * 5000}, tensors)
    with pytest.raises(FileError, match="no readable format version"):
        sealed.read(tmp_path / "c", format=metadata["format"], version=1)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_any_change_of_a_resealed_file_loads_or_fails_in_one_line(
    runs: Any, tmp_path: Path, case: int
) -> None:
    """A sample; thousands were tried. What is taken are valid values, such as other weights."""
    recipe, settings, folder = runs[case]
    rng, messages = random.Random(case), []
    for k in range(24):
        place = tmp_path / str(k)
        place.mkdir()
        if k % 3 == 0:
            source = folder / "whole" / "model.safetensors"
            resealed.mutate(source, place / "model.safetensors", rng)
        else:
            resealed.mutate(folder / CHECKPOINT, place / CHECKPOINT, rng)
        try:
            if k % 3 == 0:
                load(place / "model.safetensors", recipe)
            else:
                train(recipe, folder=place, resume=True, notice=lambda text: None, **settings)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 12
    assert all(text.isprintable() and len(text) < 1500 for text in messages)
