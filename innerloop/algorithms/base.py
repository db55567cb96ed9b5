"""The interface of an algorithm: an initial state, a step and a prediction, all of them batched.

Hyper-parameters (step sizes, preconditioners, thresholds) are tensors; states are tensors or
NamedTuples of tensors. A field that is declared with `hyperparameter()` is free: `identify` may fit
it, and its value may differ from instance to instance.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor

from innerloop.problems.problem import Problem
from innerloop.registry import get_name

P = TypeVar("P")
S = TypeVar("S")
MULTIPLES = (0.1, 0.3, 3.0)
"""Multiples of the default of a free field from which fits start, if a class defines no guesses."""


class Hyperparameter(NamedTuple):
    """The declaration of a free field: where its batch dimensions go, and whether steps differ."""

    batch_dim: int
    per_step: bool


def hyperparameter(*, per_step: bool = False) -> dict[str, Hyperparameter]:
    """Declare a field of an algorithm as free: a fit may choose its value, also per instance.

    Args:
        per_step: Whether the value's first dimension counts steps. Batch dimensions, if the value
            has any, come next.

    Returns:
        Metadata for `dataclasses.field`.

    Example:
        ```python
        step_size: Tensor = field(metadata=hyperparameter())
        ```
    """
    return {"hyperparameter": Hyperparameter(batch_dim=1 if per_step else 0, per_step=per_step)}


class Algorithm(ABC, Generic[P, S]):
    """An iteration with states of type S on a problem of type P."""

    source: ClassVar[str]
    problem_type: ClassVar[type[Problem]]
    """The class of problems that the algorithm solves: the P of the annotations, at run time."""
    required: ClassVar[tuple[str, ...]] = ("source", "problem_type")
    has_steps: ClassVar[bool] = True
    """False for a closed-form solution: the first state is the solution; steps do not change it."""
    special_case_of: ClassVar[tuple[str, ...]] = ()
    """Names of algorithms that equal this one for some values of their hyper-parameters."""

    @abstractmethod
    def init(self, problem: P) -> S:
        """Return the state before the first step."""

    @abstractmethod
    def step(self, problem: P, state: S, k: int) -> S:
        """Return the state after step k, counted from 0."""

    @abstractmethod
    def predict(self, problem: P, state: S) -> Tensor:
        """Return the prediction of a state."""

    @classmethod
    def guesses(cls, problem: P) -> list[Any]:
        """Return algorithms with approximate hyper-parameters, from which a fit starts.

        Each has one value for all steps; an empty list means that no fit is defined. By default, if
        all fields have default values, a fit starts from these, and from multiples of each free
        field.
        """
        if find_missing_defaults(cls):
            return []
        return [cls(), *vary_free_fields(cls())]

    @classmethod
    def hyperparameters(cls) -> dict[str, Hyperparameter]:
        """Return the free fields by name, as declared with `hyperparameter()`."""
        declared = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        free = {field.name: field.metadata.get("hyperparameter") for field in declared}
        return {name: declaration for name, declaration in free.items() if declaration is not None}

    def count_steps(self, problem: P) -> int | None:
        """Return the number of steps of the iteration, or None if it has no end."""
        return None

    @property
    def name(self) -> str:
        """The name of the member: its file name, with dashes."""
        return get_name(type(self))

    def states(self, problem: P, steps: int) -> Iterator[S]:
        """Yield the states after 0, 1, …, `steps` steps."""
        state = self.init(problem)
        yield state
        for k in range(steps):
            state = self.step(problem, state, k)
            yield state


def find_missing_defaults(algorithm: type) -> list[str]:
    """Return the names of a class's fields that have no default."""
    declared = dataclasses.fields(algorithm) if dataclasses.is_dataclass(algorithm) else ()
    missing = dataclasses.MISSING
    return [f.name for f in declared if f.default is missing and f.default_factory is missing]


def vary_free_fields(algorithm: Algorithm[Any, Any]) -> list[Any]:
    """Return copies of an algorithm, each with one free field multiplied by one of `MULTIPLES`."""
    return [
        dataclasses.replace(algorithm, **{name: multiple * getattr(algorithm, name)})  # pyright: ignore[reportArgumentType]
        for name in algorithm.hyperparameters()
        if isinstance(getattr(algorithm, name), Tensor | float)
        for multiple in MULTIPLES
    ]


def select_entry(values: Tensor, k: int, like: Any) -> Tensor:
    """Return entry k of a hyper-parameter (entries repeat), on the device and dtype of `like`."""
    return values[k % len(values)].to(like)
