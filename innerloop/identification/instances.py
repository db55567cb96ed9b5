"""Prompts for identification: drawing them, and finding the predictions and truths at queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.problems.base import Distribution


def draw_prompts(distribution: Distribution, prompts: int, generator: torch.Generator) -> Any:
    """Draw instances in one batch dimension, each with one query."""
    if getattr(distribution, "queries", 1) != 1:
        distribution = replace(distribution, queries=1)  # pyright: ignore[reportCallIssue]
    problem = distribution.sample(prompts, generator=generator)
    if not hasattr(problem, "x_query"):
        raise InputError(
            f"{type(problem).__name__} has no query to predict at: identification compares "
            "predictions at a query"
        )
    return problem


def select_queries(
    problem: Any, prediction: Float[Tensor, "*k batch positions"]
) -> Float[Tensor, "*k batch outputs"]:
    """Select the predictions at the queries, which come last in a prediction at every position."""
    everywhere = hasattr(problem, "queries") and prediction.shape[-1] == problem.n + problem.queries
    return prediction[..., problem.n :] if everywhere else prediction


def find_targets(problem: Any) -> Float[Tensor, "batch outputs"] | None:
    """Return the noiseless answers at the queries; None where the problem does not know them."""
    try:
        return problem.targets
    except (AttributeError, InputError):
        return None
