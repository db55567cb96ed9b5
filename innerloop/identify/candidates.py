"""The candidates: every algorithm of the package that solves a problem and says how to fit itself.

A candidate is an algorithm, a schedule (see fitting.py) and guesses to start from. An iteration
that has hyper-parameters per step is two candidates: one value for all steps, and a value for each.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError, unknown
from innerloop.identify.fitting import Schedule
from innerloop.identify.hyper import free, said
from innerloop.registry import members


@dataclass(frozen=True, eq=False)
class Candidate:
    """An algorithm by name, how it is fitted, and where the fit starts."""

    name: str
    schedule: Schedule
    guesses: Sequence[Algorithm[Any, Any]]
    kind: type

    @property
    def label(self) -> str:
        return f"{self.name} (per step)" if self.schedule == "per step" else self.name

    def view(self, problem: Any) -> Any:
        """The problem as the algorithm takes it."""
        return problem if isinstance(problem, self.kind) else problem.examples

    def contains(self, other: Candidate) -> bool:
        """Whether it does all that another does, for some choice of its hyper-parameters."""
        if self.name == other.name:
            return self.schedule == "per step"
        freer = self.schedule == "per step" or other.schedule != "per step"
        return freer and self.name in larger(other.name)


def larger(name: str) -> set[str]:
    """The algorithms that one is a special case of, directly or not."""
    known, found = members("algorithms", Algorithm), set()
    waiting = [name]
    while waiting:
        for above in known[waiting.pop()].special_case_of:
            if above not in found:
                found.add(above)
                waiting.append(above)
    return found


def candidates(
    problem: Any, prediction: Tensor, names: Sequence[str] | None = None
) -> list[Candidate]:
    """All candidates for a problem that predict in the shape of `prediction`, or those named."""
    known = members("algorithms", Algorithm)
    for name in names or ():
        if name not in known:
            raise unknown("algorithm", name, known)
    found = []
    for name in known if names is None else names:
        found += _schedules(name, known[name], problem, prediction)
    if not found:
        among = "" if names is None else f" among {', '.join(names)}"
        raise InputError(
            f"no candidate{among} solves a {type(problem).__name__} and predicts "
            f"{tuple(prediction.shape[1:])} numbers at its query: there is nothing to compare with"
        )
    return found


def _schedules(
    name: str, algorithm: type[Algorithm[Any, Any]], problem: Any, prediction: Tensor
) -> list[Candidate]:
    kind = typing.get_type_hints(algorithm.init)["problem"]
    views = [problem, *([problem.examples] if hasattr(problem, "examples") else [])]
    view = next((each for each in views if isinstance(kind, type) and isinstance(each, kind)), None)
    guesses = [] if view is None else algorithm.guesses(view)
    if not guesses:
        return []
    state = guesses[0].init(view)
    if guesses[0].predict(view, state).ndim != prediction.ndim:
        return []
    if said(guesses[0], view, state).shape != prediction.shape:
        return []
    schedules: list[Schedule] = ["one for all"] if algorithm.has_steps else ["exact"]
    if algorithm.has_steps and any(part.per_step for part in free(guesses[0])):
        schedules.append("per step")
    return [Candidate(name, schedule, guesses, kind) for schedule in schedules]
