"""The prompts on which a candidate differs from a model: the properties that its distance grows
with.

For each prompt, ‖m − c‖ is ranked against properties that make a prompt hard: the condition number
of its examples, their noise, the size of labels and query, and the distance of clusters. The
strongest rank correlation (Spearman's) is reported if it is strong and significant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.identification.instances import find_targets

MIN_CORRELATION, STANDARD_ERRORS = 0.3, 4.0
"""Correlations below this, or within this many standard errors of 0, are not reported."""
PerPrompt = Float[Tensor, " prompts"]


def describe_misses(
    problem: Any,
    model: Float[Tensor, "prompts outputs"],
    candidate: Float[Tensor, "prompts outputs"],
) -> str | None:
    """Describe the prompts on which a candidate differs most; None if no property stands out."""
    missed = (model - candidate).square().sum(dim=-1)
    if not bool(torch.isfinite(missed).all()) or float(missed.max()) == 0:
        return None
    found = {}
    for name, values in measure_difficulty(problem).items():
        if bool(torch.isfinite(values).all()) and float(values.max() - values.min()) > 0:
            found[name] = rank_correlation(missed, values)
    if not found:
        return None
    name = max(found, key=lambda each: abs(found[each]))
    least = max(MIN_CORRELATION, STANDARD_ERRORS / len(missed) ** 0.5)
    if abs(found[name]) < least:
        return None
    return f"{name} {'large' if found[name] > 0 else 'small'}"


def measure_difficulty(problem: Any) -> dict[str, PerPrompt]:
    """Return properties that may make a prompt hard, by their names in a sentence ("the noise
    is").
    """
    measured: dict[str, Callable[[], PerPrompt]] = {}
    x = getattr(problem, "x", None)
    if isinstance(x, Tensor) and x.ndim == 3:
        measured["κ is"] = lambda: _measure_condition(x)
    y, weights = getattr(problem, "y", None), getattr(problem, "weights", None)
    if isinstance(y, Tensor) and isinstance(x, Tensor):
        measured["the labels are"] = lambda: y.square().sum(dim=-1)
        query = problem.x_query.flatten(1)
        measured["the query is"] = lambda: query.square().sum(dim=-1)
        if isinstance(weights, Tensor) and find_targets(problem) is not None:
            clean = (x @ weights.unsqueeze(-1)).squeeze(-1)
            measured["the noise is"] = lambda: (y - clean).square().sum(dim=-1)
    return {name: measure() for name, measure in measured.items()}


def _measure_condition(x: Float[Tensor, "prompts n d"]) -> PerPrompt:
    """log κ of the examples: of their largest and least singular values that are not 0."""
    values = torch.linalg.svdvals(x)
    least = torch.where(values > 1e-10 * values[..., :1], values, torch.inf).amin(dim=-1)
    return (values[..., 0] / least).log()


def rank_correlation(a: PerPrompt, b: PerPrompt) -> float:
    """Return Spearman's rank correlation; ties are ranked in order."""
    ranks = [each.argsort().argsort().double() for each in (a, b)]
    centred = [each - each.mean() for each in ranks]
    length = float(centred[0].norm() * centred[1].norm())
    return float(centred[0] @ centred[1]) / length if length else 0.0
