"""Every tensor follows the device of its input, shown with a default device that holds no numbers.

There may be no GPU here. With the default device `meta` and inputs on the CPU, a tensor that is
made without the input's device has no numbers, and whatever uses it raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from test_resuming_runs import SMALL

from innerloop import build, devices, identify
from innerloop.devices import CPU, choose_device, move, require_precision, use_device
from innerloop.errors import InputError
from innerloop.problems.linear_regression import LinearRegression
from innerloop.recipes.base import load, train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.testing import check_recipe


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stray(LinearRegressionRecipe):
    """A recipe that adds a tensor on the default device to its predictions."""

    source = "a test"

    def _predict(self, model: Any, problem: Any) -> Any:
        return super()._predict(model, problem) + torch.zeros(1)


def test_a_recipe_that_does_not_follow_its_input_is_found() -> None:
    """`test_training` checks every recipe so: trained on the CPU with the default device meta."""
    check_recipe(LinearRegressionRecipe)
    with pytest.raises(AssertionError, match="a tensor is not on the device of its input"):
        check_recipe(Stray)


def test_building_and_identifying_do_not_depend_on_the_callers_default() -> None:
    """Whoever has set a default device, such as cuda, gets the same numbers."""
    built = build("preconditioned-gradient-descent", instances=4)
    options: dict[str, Any] = {"prompts": 16, "steps": 3, "algorithms": ["gradient-descent"]}
    found = identify(built, **options)
    with default_device("meta"):
        again = build("preconditioned-gradient-descent", instances=4)
        same = identify(again, device="cpu", **options)
    assert again.certificate.deviation == built.certificate.deviation
    assert same.as_dict() == found.as_dict()


def test_a_device_that_is_not_there_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_count_devices", lambda kind: int(kind == "cpu"))
    commands = {
        "train": ("train", "linear-regression"),
        "identify": ("identify", "nowhere"),
        "build": ("build", "newton"),
        "check": ("check", "ahn2023.lemma-1"),
    }
    for words in commands.values():
        for name, message in (("cuda", "no device cuda: PyTorch"), ("gpu", "no device called")):
            refused = run(*words, "--device", name)
            assert refused.code == 2, words
            assert message in refused.err
            assert refused.err.count("\n") == 1
    assert choose_device("auto") == choose_device("cpu") == choose_device(None) == CPU
    with use_device("cuda"), pytest.raises(InputError, match="there is no device cuda"):
        choose_device()


def test_the_best_device_that_is_there_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, best in (({"cuda": 2, "mps": 1}, "cuda"), ({"mps": 1}, "mps"), ({}, "cpu")):
        count = {"cpu": 1, **there}
        monkeypatch.setattr(devices, "_count_devices", lambda kind, count=count: count.get(kind, 0))
        assert choose_device("auto").type == best
    monkeypatch.setattr(devices, "_count_devices", lambda kind: 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match="there is no device cuda:2: it has 2"):
        choose_device("cuda:2")
    for wrong in ("cuda:x", "cpu:1", "", "tpu"):
        with pytest.raises(InputError, match="no device called"):
            choose_device(wrong)


def test_float64_is_refused_where_it_is_not() -> None:
    mps = torch.device("mps")
    require_precision(mps, torch.zeros(1))
    with pytest.raises(InputError, match="float64, which mps does not have"):
        require_precision(mps, LinearRegression(d=2, n=3).sample(1))


def test_batches_are_moved_whole_and_only_if_they_must() -> None:
    problem = LinearRegression(d=2, n=3).sample(2)
    batch = {"a": (problem, [torch.zeros(1)]), "b": "word"}
    same = move(batch, CPU)
    assert same["a"][0] is problem
    moved = move((torch.zeros(2), [torch.ones(3)], {"x": torch.ones(1)}), torch.device("meta"))
    assert {t.device.type for t in devices.iterate_tensors(moved)} == {"meta"}


def test_the_device_is_recorded_with_the_run(tmp_path: Any) -> None:
    train("linear-regression", folder=tmp_path, device="auto", **SMALL)
    about = load(tmp_path / "model.safetensors")[2]
    assert about["device"].partition(" ")[0] == choose_device("auto").type
    assert about["environments"][0]["processes"] == 1
