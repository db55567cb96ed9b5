"""Problems cut up: instances, queries and prefixes, whatever the kind of problem.

A problem is a dataclass of tensors, or tuples of tensors, with the batch dimensions first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.problems.base import Distribution
from innerloop.problems.linear_regression import RegressionProblem


def changed(problem: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The problem with every tensor of it changed."""

    def applied(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(applied, value))
        return change(value) if isinstance(value, Tensor) else value

    return replace(
        problem, **{field.name: applied(getattr(problem, field.name)) for field in fields(problem)}
    )


def first(problem: Any, count: int) -> Any:
    """The first so many instances of a batch."""
    return changed(problem, lambda tensor: tensor[:count])


def drawn(distribution: Distribution, prompts: int, generator: torch.Generator) -> Any:
    """So many instances in one batch dimension, each with one query."""
    if getattr(distribution, "queries", 1) != 1:
        distribution = replace(distribution, queries=1)  # pyright: ignore[reportCallIssue]
    problem = distribution.sample(prompts, generator=generator)
    if not hasattr(problem, "x_query"):
        raise InputError(
            f"{type(problem).__name__} has no query to predict at: identification compares "
            "predictions at a query"
        )
    return problem


def asked(problem: Any, queries: Float[Tensor, "batch count d"]) -> Any:
    """Each instance as often as it has new queries, with one of them each time."""
    count = queries.shape[1]
    repeated = changed(problem, lambda tensor: tensor.repeat_interleave(count, dim=0))
    return replace(repeated, x_query=queries.flatten(0, 1).reshape(repeated.x_query.shape))


def prefixes(problem: RegressionProblem) -> list[RegressionProblem]:
    """Positions 2 … n + 1 of the prompts: the examples before each, and the next x as the query."""
    rows = torch.cat([problem.x, problem.x_query], dim=-2)
    return [
        replace(problem, x=problem.x[:, :m], y=problem.y[:, :m], x_query=rows[:, m : m + 1])
        for m in range(1, problem.n + 1)
    ]


def at_queries(
    problem: Any, prediction: Float[Tensor, "*k batch positions"]
) -> Float[Tensor, "*k batch outputs"]:
    """What a prediction says of the queries, which come last where it speaks of every position."""
    everywhere = hasattr(problem, "queries") and prediction.shape[-1] == problem.n + problem.queries
    return prediction[..., problem.n :] if everywhere else prediction


def truth(problem: Any) -> Float[Tensor, "batch outputs"] | None:
    """The noiseless answers at the queries, where the problem knows them."""
    try:
        return problem.targets
    except (AttributeError, InputError):
        return None
