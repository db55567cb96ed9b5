"""Loading of a model by name: a file of `build -o`, a run of `train`, or `module:attribute`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from innerloop import sealed
from innerloop.algorithms.base import Algorithm, find_missing_defaults
from innerloop.errors import InputError
from innerloop.identification.identification import as_model
from innerloop.identification.models import ConstructionModel, Model
from innerloop.identification.trained import TrainedModel
from innerloop.locations import load_object
from innerloop.parameters import parse_settings
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.recipes.base import FORMAT
from innerloop.recipes.runs import find_model
from innerloop.registry import find_class, load_members, make_member


def load_model(word: str, definition: str | None = None) -> Model:
    """Load a model from a file or folder of a run, or what stands at `module:attribute`.

    An attribute that is a function without arguments, or the class of a policy, is called for the
    model. `definition` is the construction or recipe of a file whose own is not registered, as
    `file.py:attribute`.
    """
    if ":" not in word or Path(word).exists():
        path = find_model(Path(word))
        trained = sealed.read_format(path) == FORMAT
        return (TrainedModel if trained else ConstructionModel).read(path, definition)
    if definition is not None:
        raise InputError(f"a definition is for files of `build` and `train`, not for {word}")
    value: Any = load_object(word)
    if inspect.isfunction(value) and not inspect.signature(value).parameters:
        value = value()
    if inspect.isclass(value) and issubclass(value, Policy):
        value = make_policy(value, word)
    return as_model(value, word)


def make_policy(kind: type[Policy[Any, Any]], word: str) -> Policy[Any, Any]:
    """Make a policy of a class with the values that it has by default."""
    missing = find_missing_defaults(kind)
    if missing:
        raise InputError(
            f"{word} has no value for {', '.join(missing)}: give a default, or name an object"
        )
    return kind()


def check_request(problem: str | None, settings: Sequence[str], algorithms: Sequence[str]) -> None:
    """Refuse what can be refused before a model is loaded: names and settings that do not exist."""
    if problem is not None:
        _make_distribution(problem, settings)
    policies = load_members("policies", Policy)
    for name in algorithms:
        if name not in policies:
            find_candidate(name)


def find_candidate(name: str) -> Any:
    """Find an algorithm or a policy by name or location; an object of theirs stays so."""
    if ":" in name:
        value = load_object(name)
        if isinstance(value, Algorithm | Policy):
            return value
        if inspect.isclass(value) and issubclass(value, Policy):
            return value
    return find_class("algorithms", Algorithm, name)


def _make_distribution(problem: str, settings: Sequence[str]) -> Distribution:
    kind = find_class("problems", Distribution, problem)
    return make_member("problems", Distribution, problem, parse_settings(kind, settings))


def select_distribution(model: Model, problem: str | None, settings: Sequence[str]) -> Distribution:
    """Select the distribution called `problem`, or the model's own, with `key=value` settings."""
    if problem is not None:
        return _make_distribution(problem, settings)
    own = model.distribution()
    if own is None:
        raise InputError(
            "this model does not declare its problems: name them, for instance with "
            "--problem linear-regression -s d=5 -s n=20"
        )
    return replace(own, **parse_settings(type(own), settings)) if settings else own
