"""The candidates: every algorithm that solves a problem and says how to fit itself.

A candidate is an algorithm, a schedule (see fitting.py) and guesses to start from. An iteration
that has hyper-parameters per step is two candidates: one value for all steps, and a value for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.identification.fitting import Schedule
from innerloop.identification.hyper import list_free_parameters, predict_state
from innerloop.identification.instances import copy_problem
from innerloop.locations import load_object
from innerloop.registry import find_class, get_name, load_members


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
        return f"{self.name} (per step)" if self.schedule == "per step" else self.name

    def view(self, problem: Any) -> Any:
        """Return the problem in the form that the algorithm takes: itself, or its examples."""
        return problem if isinstance(problem, self.algorithm.problem_type) else problem.examples

    def contains(self, other: Candidate) -> bool:
        """Whether some choice of its hyper-parameters reproduces any choice of another's."""
        if self.name == other.name:
            return self.schedule == "per step"
        freer = self.schedule == "per step" or other.schedule != "per step"
        return freer and self.name in find_generalisations(other.algorithm)


def find_generalisations(algorithm: type[Algorithm[Any, Any]]) -> set[str]:
    """Name the algorithms that one is a special case of, directly or not."""
    known = load_members("algorithms", Algorithm)
    names, waiting = set[str](), [algorithm]
    while waiting:
        above = set(waiting.pop().special_case_of) - names
        names |= above
        waiting += [known[name] for name in above if name in known]
    return names


Given = str | Algorithm[Any, Any] | type[Algorithm[Any, Any]]
"""An algorithm by name, `module:attribute`, class, or an object to start the fit from."""


def list_candidates(
    problem: Any, prediction: Tensor, given: Sequence[Given] | None = None
) -> list[Candidate]:
    """List the candidates for a problem that predict in the shape of `prediction`.

    They are all registered algorithms, or those that are given.
    """
    if given is None:
        given = list(load_members("algorithms", Algorithm))
        among = ""
    else:
        among = f" among {', '.join(map(_name_given, given))}"
    found = []
    for algorithm in given:
        found += _make_candidates(_load_given(algorithm), problem, prediction)
    if not found:
        raise InputError(
            f"no candidate{among} solves a {type(problem).__name__} and predicts "
            f"{tuple(prediction.shape[1:])} numbers at its query: there is nothing to compare with"
        )
    return found


def _load_given(given: Given) -> Algorithm[Any, Any] | type[Algorithm[Any, Any]]:
    """Load an algorithm that is given by name or location; one that is an object stays so."""
    if isinstance(given, str) and ":" in given:
        given = load_object(given)
    return given if isinstance(given, Algorithm) else find_class("algorithms", Algorithm, given)


def _name_given(given: Given) -> str:
    if isinstance(given, str):
        return given
    return get_name(type(given) if isinstance(given, Algorithm) else given)


def _make_candidates(
    given: Algorithm[Any, Any] | type[Algorithm[Any, Any]], problem: Any, prediction: Tensor
) -> list[Candidate]:
    algorithm = type(given) if isinstance(given, Algorithm) else given
    views = [problem, *([problem.examples] if hasattr(problem, "examples") else [])]
    view = next((each for each in views if isinstance(each, algorithm.problem_type)), None)
    if view is None:
        return []
    view = copy_problem(view)
    guesses = [given] if isinstance(given, Algorithm) else algorithm.guesses(view)
    if not guesses:
        return []
    state = guesses[0].init(view)
    if guesses[0].predict(view, state).ndim != prediction.ndim:
        return []
    if predict_state(guesses[0], view, state).shape != prediction.shape:
        return []
    schedules: list[Schedule] = ["one for all"] if algorithm.has_steps else ["exact"]
    if algorithm.has_steps and any(part.per_step for part in list_free_parameters(guesses[0])):
        schedules.append("per step")
    return [Candidate(get_name(algorithm), schedule, guesses) for schedule in schedules]
