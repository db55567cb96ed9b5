"""Several settings of an algorithm on the same prompts in one run, each with a share of the batch.

A step of an iteration on a few prompts costs about what its operations cost to start, however many
prompts there are. So guesses that differ in free numbers only are run together, and the slopes of a
few numbers are central differences from one run, which needs no second pass back through all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.hyper import (
    DIFFERENCE,
    list_free_parameters,
    pack_parameters,
    predict_at_steps,
    takes_values_per_instance,
    unpack_parameters,
)
from innerloop.problems.problem import Problem

MAX_INSTANCES = 2048
"""Instances of one run at most: beyond, a run costs what its arithmetic does."""
FEW_NUMBERS = 4
"""Free numbers whose slopes are taken by differences; more have them from a backward pass."""


def fits_in_one_run(algorithm: Algorithm[Any, Any], problem: Any, count: int) -> bool:
    """Return whether this number of settings of an algorithm can be run together with a gain of
    speed.
    """
    return (
        isinstance(problem, Problem)
        and count * len(problem) <= MAX_INSTANCES
        and takes_values_per_instance(algorithm, problem)
    )


def predict_together(
    algorithms: Sequence[Algorithm[Any, Any]], problem: Any, steps: Sequence[int]
) -> Float[Tensor, "settings k batch outputs"]:
    """Predict with algorithms that differ in free numbers only, after each of these steps."""
    count, batch = len(algorithms), len(problem)
    values = {}
    for part in list_free_parameters(algorithms[0]):
        each = torch.stack([getattr(a, part.name) for a in algorithms], part.batch_dim)
        values[part.name] = each.repeat_interleave(batch, part.batch_dim)
    together = replace(algorithms[0], **values)  # pyright: ignore[reportArgumentType]
    repeated = problem[torch.arange(batch).repeat(count)]
    with torch.no_grad():
        predictions = predict_at_steps(together, repeated, steps)
    return predictions.unflatten(1, (count, batch)).movedim(1, 0)


def difference_together(
    algorithm: Algorithm[Any, Any], problem: Any, steps: Sequence[int]
) -> tuple[Float[Tensor, "k batch outputs"], Float[Tensor, "k batch outputs numbers"]]:
    """Return the predictions after some steps, and their derivatives by θ, by differences."""
    theta = pack_parameters(algorithm)
    sizes = DIFFERENCE * theta.abs().clamp_min(DIFFERENCE)
    moves = torch.cat([torch.zeros_like(theta)[None], sizes.diag(), -sizes.diag()])
    moved = [unpack_parameters(algorithm, theta + move) for move in moves]
    here, *around = predict_together(moved, problem, steps)
    ahead, behind = around[: len(theta)], around[len(theta) :]
    slopes = (torch.stack(ahead, dim=-1) - torch.stack(behind, dim=-1)) / (2 * sizes)
    return here, slopes
