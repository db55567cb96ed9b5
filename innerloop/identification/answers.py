"""Answers that no comparison can judge: those that diverged, and those that never vary.

Numbers are compared with those of the problem. An answer that is `DIVERGENCE` times as large as any
number of the problem has diverged, finite or not. A layer answers a constant if its answers vary by
less than scores resolve. Without this rule, every iteration that starts from 0 would fit a layer
that always answers 0, at step 0.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.identification.families.base import Family
from innerloop.identification.instances import list_tensors
from innerloop.identification.measures import FLOOR, LayerPredictions, Truth

DIVERGENCE = 1e12
MAX_SIZE = 1e100
"""Squares of larger numbers, and sums and ratios of squares, overflow."""
RESOLUTION = 1e-3 * FLOOR
"""Share of the truth's power below which a variation is none: a score of 0.999 at the floor."""


def find_limit(problem: Any) -> float:
    """Return the size above which an answer to a problem has diverged."""
    tensors = [tensor for tensor in list_tensors(problem) if tensor.is_floating_point()]
    size = max(float(tensor.abs().max()) for tensor in tensors) or 1.0
    if size > MAX_SIZE:
        raise InputError(
            f"the problems hold numbers up to {size:.3g}, whose squares overflow: "
            "scale the labels down"
        )
    return min(DIVERGENCE * size, MAX_SIZE)


def mark_diverged(
    predictions: Float[Tensor, "k batch outputs"], problem: Any
) -> Float[Tensor, "k batch outputs"]:
    """Replace predictions that have diverged by infinity."""
    return torch.where(predictions.abs() <= find_limit(problem), predictions, torch.inf)


def describe_constants(
    model: LayerPredictions, problem: Any, family: Family, truth: Truth | None
) -> list[str | None]:
    """Describe each layer whose answers are the same for all prompts; None for the other layers."""
    against = truth if truth is not None else getattr(problem, "y", model[-1])
    power = float(against.square().mean())
    found = []
    for layer in model:
        mean = layer.mean(dim=0)
        spread, size = float((layer - mean).square().mean()), float(mean.square().mean())
        # The mean of equal numbers may be off by a rounding.
        if spread > max(RESOLUTION * power, 1e-24 * size):
            found.append(None)
        else:
            zero = size <= RESOLUTION * power
            found.append(family.describe_constant(torch.zeros_like(mean) if zero else mean))
    return found
