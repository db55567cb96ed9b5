"""Load a model by name: a file of `build -o`, a run of `train`, or `module:attribute`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from innerloop import sealed
from innerloop.algorithms.base import find_missing_defaults
from innerloop.constructions.base import Construction
from innerloop.errors import FileError, InputError
from innerloop.identification.candidates import find_algorithm
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


def load_model(
    word: str, definition: str | None = None, settings: Sequence[str] | None = None
) -> Model:
    """Load a model from a file, from the folder of a run, or from `module:attribute`.

    A construction or a program, by name or location, is built with `key=value` settings. If the
    attribute is a function without arguments, or the class of a policy, it is called and returns
    the model. `definition` is the location (`file.py:attribute`) of the construction or recipe of a
    file, if it is not registered.
    """
    kind = find_construction(word)
    if definition is not None and (kind is not None or (":" in word and not Path(word).exists())):
        raise InputError(f"a definition is for files of `build` and `train`, not for {word}")
    if kind is not None:
        values = parse_settings(kind, settings or [])
        return as_model(make_member("constructions", Construction, kind, values))
    if ":" not in word or Path(word).exists():
        path = find_model(Path(word))
        trained = sealed.read_format(path) == FORMAT
        return (TrainedModel if trained else ConstructionModel).read(path, definition)
    value: Any = load_object(word)
    if inspect.isfunction(value) and not inspect.signature(value).parameters:
        value = value()
    if inspect.isclass(value) and issubclass(value, Policy):
        value = make_policy(value, word)
    return as_model(value, word)


def find_construction(word: str) -> type[Construction[Any, Any]] | None:
    """Find the construction or program with this name, unless there is a file of that name."""
    if Path(word).exists():
        return None
    if ":" in word:
        value = load_object(word)
        return value if inspect.isclass(value) and issubclass(value, Construction) else None
    kinds = ("constructions", "programs")
    known = {
        name: each for kind in kinds for name, each in load_members(kind, Construction).items()
    }
    if word not in known and (near := difflib.get_close_matches(word, known, n=1)):
        raise FileError(
            f"there is no such file as {word}, and no construction or program of that name; did "
            f"you mean {near[0]!r}?"
        )
    return known.get(word)


def load_with_problems(
    word: str, definition: str | None, problem: str | None, settings: Sequence[str]
) -> tuple[Model, Distribution]:
    """Load a model and the distribution of problems to test it on.

    Settings belong to the problem. If no problem is named, they belong to the construction.
    """
    built = problem is None and find_construction(word) is not None
    model = load_model(word, definition, settings if built else [])
    return model, select_distribution(model, problem, [] if built else settings)


def make_policy(kind: type[Policy[Any, Any]], word: str) -> Policy[Any, Any]:
    """Make a policy from its class, with default parameters."""
    missing = find_missing_defaults(kind)
    if missing:
        raise InputError(
            f"{word} has no value for {', '.join(missing)}: give a default, or name an object"
        )
    return kind()


def check_request(problem: str | None, settings: Sequence[str], algorithms: Sequence[str]) -> None:
    """Raise an error for unknown names and settings, before a model is loaded."""
    if problem is not None:
        _make_distribution(problem, settings)
    policies = load_members("policies", Policy)
    for name in algorithms:
        if name not in policies:
            find_candidate(name)


def find_candidate(name: str) -> Any:
    """Find an algorithm or a policy by name or location; for a program, its algorithm."""
    if ":" in name:
        value = load_object(name)
        if isinstance(value, Policy) or (inspect.isclass(value) and issubclass(value, Policy)):
            return value
    return find_algorithm(name)


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
