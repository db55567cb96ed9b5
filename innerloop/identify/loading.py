"""A model named by a word: a file of `build -o`, a run of `train`, or `module:attribute`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from innerloop import sealed
from innerloop.errors import InputError, unknown
from innerloop.identify.identification import model_of
from innerloop.identify.models import ConstructionModel, Model
from innerloop.identify.trained import TrainedModel
from innerloop.parameters import parse
from innerloop.problems.base import Distribution
from innerloop.recipes.base import FORMAT
from innerloop.registry import find


def loaded(word: str) -> Model:
    """The model of that name; an attribute that is a function of nothing is called for it."""
    module, colon, attribute = word.partition(":")
    if not colon or Path(word).exists():
        path = Path(word)
        if path.is_dir():
            path = path / "model.safetensors"
        trained = sealed.format_of(path) == FORMAT
        return TrainedModel.read(path) if trained else ConstructionModel.read(path)
    value: Any = _imported(module)
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise unknown("attribute", name, [n for n in dir(value) if not n.startswith("_")])
        value = getattr(value, name)
    if inspect.isfunction(value) and not inspect.signature(value).parameters:
        value = value()
    return model_of(value)


def chosen(model: Model, problem: str | None, settings: Sequence[str]) -> Distribution:
    """The distribution called `problem`, or the model's own, with settings as `key=value`."""
    if problem is not None:
        kind = find("problems", Distribution, problem)
        return kind.made(parse(kind, settings))
    own = model.distribution()
    if own is None:
        raise InputError(
            "say which problems the model is for, such as --problem linear-regression "
            "-s d=5 -s n=20"
        )
    return replace(own, **parse(type(own), settings)) if settings else own


def _imported(name: str) -> Any:
    """The module, also from the current folder."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"cannot import {name!r}: {type(error).__name__}: {error}; "
            "expected module:attribute, for instance my_model:predict"
        ) from None
