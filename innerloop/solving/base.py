"""Base classes of solvers; a solver is a dataclass of options that solves a batch of problems."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError, unknown_name_error
from innerloop.limits import check_count
from innerloop.solving.data import Samples

S = TypeVar("S", bound="Solver")
Answers = dict[str, Tensor]
"""Arrays by name, with the problem as first dimension.

`optimality`, `converged` and `steps` are always among them.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Solver(ABC):
    """Base class of solvers: frozen dataclasses whose fields are the solver's options."""

    measure: ClassVar[str]
    """A description of the optimality measure, for messages."""
    labelled: ClassVar[bool] = True
    """Whether problems have labels y."""
    weighted: ClassVar[bool] = True
    """Whether the solver accepts sample weights."""
    default_tolerance: ClassVar[float] = 1e-8

    @classmethod
    def from_options(cls: type[S], name: str, options: dict[str, Any]) -> S:
        """Make a solver; an unknown option raises an error that names the most similar option."""
        known = [field.name for field in fields(cls) if field.init]
        for option in options:
            if option not in known:
                raise unknown_name_error(f"option of solve({name!r}, …)", option, known)
        if "max_steps" in options:
            check_count("max_steps", options["max_steps"], 1)
        intercept = options.get("fit_intercept", True)
        if not isinstance(intercept, bool | np.bool_):
            raise InputError(f"fit_intercept must be True or False, got {intercept!r}")
        return cls(**options)

    def count_numbers(self, d: int) -> tuple[int, int]:
        """Return how many numbers a problem needs in memory: per row of data, and per problem."""
        return 4 * d, 4 * d * d

    def prepare(self, sizes: Sequence[int], d: int) -> Solver:
        """Check the options against the sizes of all problems, and return the solver for them.

        Defaults that depend on the sizes are replaced by numbers.
        """
        return self

    @abstractmethod
    def solve(self, samples: Samples, tolerance: float) -> Answers:
        """Solve every problem of a batch; converged means a measure within the tolerance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PenalisedSolver(Solver, ABC):
    """Base class of linear solvers with a penalty: one number, or one per problem."""

    default_penalty: ClassVar[float]
    least_penalty: ClassVar[float] = 0.0

    penalty: Any = None
    fit_intercept: bool = True

    def resolve_penalties(self, samples: Samples) -> Float[Tensor, "problems 1"]:
        """Return the penalty of each problem of a batch."""
        penalty = self.default_penalty if self.penalty is None else self.penalty
        values = torch.as_tensor(penalty, dtype=torch.float64).to(samples.x.device)
        if values.ndim == 1:
            values = values[samples.places]
        return values.expand(len(samples.x)).unsqueeze(-1)

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        answers = self.solve_path(samples, self.resolve_penalties(samples), tolerance)
        return {name: values[:, 0] for name, values in answers.items()}

    @abstractmethod
    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        """Solve every problem for each of its penalties; return arrays (problems, path, …)."""

    def largest_penalty(self, samples: Samples) -> Float[Tensor, " problems"]:
        """Return the smallest penalty with zero weights: the largest one of a default path."""
        raise InputError("pass a list of penalties as path=: this solver has no default path")

    def default_path(self) -> list[float] | None:
        """Return the penalties that cross-validation tries by default, or None for a grid."""
        return None


def check_positive(name: str, value: Any, least: float = 0.0, strict: bool = False) -> None:
    """Raise an error unless a value is a number of at least `least` (above it if `strict`)."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    fine = number and least <= value < math.inf
    if not fine or (strict and value == least):
        above = "above" if strict else "at least"
        raise InputError(f"{name} must be a finite number {above} {least:g}, got {value!r}")
