"""Prompts for identification: drawing and copying them, and the answers to them as vectors.

Models, candidates and distributions may be user code, which may edit its arguments in place or keep
references to them. Such code therefore receives copies, and its results are copied before any other
code runs.
"""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.identification.families.choosing import flatten_answers
from innerloop.identification.families.games import draw_instances
from innerloop.identification.families.queries import Queries
from innerloop.limits import check_memory
from innerloop.problems.base import Distribution
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.points import PointsProblem
from innerloop.problems.problem import Problem
from innerloop.problems.tabular_games import TabularGameProblem

P = TypeVar("P")
ANSWERED = (PointsProblem, BanditGameProblem, TabularGameProblem)
"""Problems without queries whose answers can be compared."""
COPIES = 3
"""Copies of a problem in memory at once: the distribution's, the drawn one, and the model's."""


def draw_prompts(distribution: Distribution, prompts: int, generator: torch.Generator) -> Any:
    """Draw instances in one batch dimension, each with one query if problems have queries.

    Environments are played by several behaviours. An error is raised before drawing if the
    instances would need too much memory.
    """
    if getattr(distribution, "queries", 1) != 1:
        distribution = replace(distribution, queries=1)  # pyright: ignore[reportCallIssue]
    size = _measure_instance(draw_sample(distribution, prompts))
    check_memory(COPIES * prompts * size, f"drawing {prompts} prompts")
    problem = copy_problem(draw_instances(distribution, prompts, generator))
    if not (hasattr(problem, "x_query") or isinstance(problem, ANSWERED)):
        raise InputError(
            f"{type(problem).__name__} asks nothing that is known here: identification compares "
            "predictions at a query, clusters, directions, or decisions"
        )
    return problem


def draw_sample(distribution: Distribution, prompts: int) -> Any:
    """Draw a single instance to look at, before as many as `prompts` are drawn."""
    _check_sizes(distribution, prompts)
    return draw_instances(distribution, 1, torch.Generator().manual_seed(0))


def list_tensors(problem: Any) -> list[Tensor]:
    """List the tensors of a problem, also those in tuples."""
    values = vars(problem).values() if hasattr(problem, "__dict__") else problem
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return [part for part in parts if isinstance(part, Tensor)]


def _measure_instance(sample: Any) -> int:
    """Return the bytes of one instance."""
    return sum(tensor.numel() * tensor.element_size() for tensor in list_tensors(sample))


def _check_sizes(distribution: Distribution, prompts: int) -> None:
    """Refuse problems that are too large by the sizes they declare, before any is drawn."""
    n, d, width = (getattr(distribution, name, 1) for name in ("n", "d", "width"))
    if all(isinstance(size, int) for size in (n, d, width)):
        size = 8 * ((n + 1) * d + width**2)
        check_memory(COPIES * prompts * size, f"drawing {prompts} prompts")


def copy_problem(problem: P) -> P:
    """Copy the tensors of a problem, for code that may edit them in place.

    A problem of the package was checked when it was made, and is not checked again.
    """
    if not isinstance(problem, Problem):
        return deepcopy(problem)
    same = copy(problem)
    vars(same).update({name: _clone(value) for name, value in vars(problem).items()})
    return same


def _clone(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_clone, value))
    return value.clone() if isinstance(value, Tensor) else value


def copy_state(state: Any) -> Any:
    """Copy the tensors of an algorithm's state, for a step that may edit them in place."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, tuple):
        parts = map(copy_state, state)
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return deepcopy(state)


def select_queries(problem: Any, prediction: Tensor) -> Float[Tensor, "*k batch outputs"]:
    """Return answers as vectors; predictions are those at the queries, which come last."""
    return flatten_answers(problem, prediction)


def find_targets(problem: Any) -> Float[Tensor, "batch outputs"] | None:
    """Return the noiseless answers at the queries, or None if the problem does not know them."""
    return Queries().find_targets(problem)
