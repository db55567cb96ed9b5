"""The candidates: every algorithm that solves a problem and declares how it is fitted.

A candidate is an algorithm, a schedule (see fitting.py) and guesses that its fit starts from. An
iteration with hyper-parameters per step is two candidates: one value for all steps, and a value for
each step.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm, find_missing_defaults
from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.identification.fitting import Schedule
from innerloop.identification.hyper import free_numbers, list_free_parameters
from innerloop.identification.instances import copy_problem, select_queries
from innerloop.language.construction import ProgramConstruction
from innerloop.limits import is_out_of_memory
from innerloop.locations import describe_failure, load_object
from innerloop.registry import SkippedMember, find_class, get_name, load_members, make_member

GUESSED_PROMPTS, SHOWN_PROMPTS = 256, 4
"""The number of prompts from which guesses are computed, and on which the shape of an
algorithm's predictions is determined.
"""


class LackingError(InputError):
    """The reason why an algorithm is not a candidate, to follow its name: "lacks …", "predicts
    …".
    """


@dataclass(frozen=True, eq=False)
class Candidate:
    """An algorithm by name, the schedule of its fit, and guesses to start from."""

    name: str
    schedule: Schedule
    guesses: Sequence[Algorithm[Any, Any]]

    @property
    def algorithm(self) -> type[Algorithm[Any, Any]]:
        """The class of the algorithm."""
        return type(self.guesses[0])

    @property
    def label(self) -> str:
        name = f"scaled {self.name}" if self.is_scaled else self.name
        return f"{name} (per step)" if self.schedule == "per step" else name

    @property
    def is_scaled(self) -> bool:
        """Whether predictions are multiplied by a free gain (scaled.py)."""
        return hasattr(self.guesses[0], "gain")

    def view(self, problem: Any) -> Any:
        """Return the problem in the form that the algorithm takes: itself, or its examples."""
        return problem if isinstance(problem, self.algorithm.problem_type) else problem.examples

    def contains(self, other: Candidate) -> bool:
        """Return whether some choice of its hyper-parameters reproduces any choice of another
        candidate's.
        """
        if other.is_scaled or (self.is_scaled and self.name != other.name):
            return False
        if self.name == other.name:
            return self.is_scaled or self.schedule == "per step"
        freer = self.schedule == "per step" or other.schedule != "per step"
        return freer and self.name in find_generalisations(other.algorithm)


def find_generalisations(algorithm: type[Algorithm[Any, Any]]) -> set[str]:
    """Return the names of the algorithms that contain an algorithm as a special case, directly
    or not.
    """
    known = load_members("algorithms", Algorithm)
    names, waiting = set[str](), [algorithm]
    while waiting:
        above = set(waiting.pop().special_case_of) - names
        names |= above
        waiting += [known[name] for name in above if name in known]
    return names


Given = (
    str
    | Algorithm[Any, Any]
    | type[Algorithm[Any, Any]]
    | Construction[Any, Any]
    | type[Construction[Any, Any]]
)
"""An algorithm by name, `module:attribute`, class, or an object to start the fit from; or a program
that runs one."""


def list_candidates(
    problem: Any, prediction: Tensor, sources: Sequence[Given] | None = None
) -> list[Candidate]:
    """List the candidates for a problem that predict in the shape of `prediction`.

    They are all registered algorithms, or those of `sources`; one of these that cannot be a
    candidate is skipped with a warning that says what it lacks.
    """
    chosen = list(load_members("algorithms", Algorithm)) if sources is None else sources
    found, lacking = [], []
    for each in chosen:
        algorithm = find_algorithm(each)
        try:
            found += _make_candidates(algorithm, problem, prediction)
        except LackingError as error:
            lacking.append(f"{_name_source(each)} {error}")
    if not found:
        among = "" if sources is None else f" among {', '.join(map(_name_source, sources))}"
        raise InputError(
            f"no candidate{among} solves a {type(problem).__name__} and predicts "
            f"{tuple(prediction.shape[1:])} numbers at its query: there is nothing to compare with"
            + (f" ({'; '.join(lacking)})" if sources is not None else "")
        )
    if sources is not None:
        for reason in lacking:
            warnings.warn(f"not a candidate: {reason}", SkippedMember, stacklevel=2)
    return found


def find_algorithm(source: Any) -> Algorithm[Any, Any] | type[Algorithm[Any, Any]]:
    """Find an algorithm by its name, location or class; an object of one is returned as it is.

    A program, or another construction, stands for the algorithm that it runs.
    """
    if isinstance(source, str) and ":" in source:
        source = load_object(source)
    if isinstance(source, str) and source not in load_members("algorithms", Algorithm):
        source = load_members("programs", Construction).get(source, source)
    if isinstance(source, Algorithm):
        return source
    if isinstance(source, Construction):
        return source.algorithm
    if inspect.isclass(source) and issubclass(source, Construction):
        if issubclass(source, ProgramConstruction) and source.takes_interpreter():
            return source.reference
        return type(make_member("constructions", Construction, source, {}).algorithm)
    return find_class("algorithms", Algorithm, source)


def _name_source(source: Given) -> str:
    if isinstance(source, str):
        return source
    return get_name(source if inspect.isclass(source) else type(source))


def _make_candidates(
    source: Algorithm[Any, Any] | type[Algorithm[Any, Any]], problem: Any, prediction: Tensor
) -> list[Candidate]:
    algorithm = type(source) if isinstance(source, Algorithm) else source
    views = [problem, *([problem.examples] if hasattr(problem, "examples") else [])]
    view = next((each for each in views if isinstance(each, algorithm.problem_type)), None)
    if view is None:
        raise LackingError(f"solves a {algorithm.problem_type.__name__}")
    view, few = copy_problem(view[:GUESSED_PROMPTS]), len(prediction[:SHOWN_PROMPTS])
    try:
        guesses = [source] if isinstance(source, Algorithm) else algorithm.guesses(view)
        guesses = [free_numbers(guess) for guess in guesses]
        shape = _find_shape(guesses[-1], view[:few]) if guesses else None
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise LackingError(f"fails: {describe_failure(error)}") from error
    if shape is None:
        fields = ", ".join(find_missing_defaults(algorithm)) or "its fields"
        raise LackingError(f"lacks guesses to fit from: give {fields} a default, or write guesses")
    if (few, *prediction.shape[1:]) != tuple(shape):
        every = (len(prediction), *shape[1:])
        raise LackingError(
            f"predicts shape {every} for {len(prediction)} prompts, "
            f"the model {tuple(prediction.shape)}"
        )
    schedules: list[Schedule] = ["one for all"] if algorithm.has_steps else ["exact"]
    if algorithm.has_steps and any(part.per_step for part in list_free_parameters(guesses[0])):
        schedules.append("per step")
    return [Candidate(get_name(algorithm), schedule, guesses) for schedule in schedules]


def _find_shape(guess: Algorithm[Any, Any], view: Any) -> torch.Size:
    """Return the shape that an algorithm predicts in, at the queries where it has some."""
    state = guess.init(view)
    guess.step(view, state, 0)
    prediction = guess.predict(view, state)
    return select_queries(view, prediction).shape if prediction.ndim == 2 else prediction.shape
