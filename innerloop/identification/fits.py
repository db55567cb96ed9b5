"""A candidate's fit: its target, its cost at each layer, and the match that results from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate
from innerloop.identification.fitting import FitTarget, match_steps
from innerloop.identification.hyper import (
    list_free_parameters,
    pack_parameters,
    predict_at_steps,
    predict_steps,
    repeat_per_step,
)
from innerloop.identification.measures import LayerPredictions
from innerloop.identification.scores import Match
from innerloop.identification.shared import SharedFit

MATCHED_PROMPTS = 256
"""The number of prompts that decide which step matches a layer best."""


class Fit(NamedTuple):
    """A candidate, its target, and its fit so far with its cost at each layer.

    `trials` are the brief fits from which the fits of values shared by all steps continue.
    """

    candidate: Candidate
    fit_target: FitTarget
    algorithms: list[Algorithm[Any, Any]]
    steps: list[int]
    costs: Float[Tensor, " layers"]
    trials: Sequence[SharedFit] = ()


def measure_fit(
    candidate: Candidate,
    fit_target: FitTarget,
    algorithms: list[Algorithm[Any, Any]],
    steps: list[int],
) -> Fit:
    """Compute the cost of a fit at each layer, and the best steps if all steps share their
    values.
    """
    few, each = fit_target.take_first(MATCHED_PROMPTS), range(fit_target.layers)
    with torch.no_grad():
        if candidate.schedule == "exact":
            steps = [0] * fit_target.layers
            tables = {key: few.tabulate_costs(a, 0) for key, a in list_distinct(algorithms).items()}
            costs = torch.stack([tables[id(algorithms[k])][k, 0] for k in each])
        else:
            table = few.tabulate_costs(algorithms[0], max(steps))
            if candidate.schedule == "one for all":
                steps = match_steps(table)
            costs = table[each, steps]
    return Fit(candidate, fit_target, algorithms, steps, costs)


def adopt_fit(candidate: Candidate, fit_target: FitTarget, special: Fit) -> Fit:
    """Return the fit of a special case as a fit of a candidate that contains it.

    The values are copied; a candidate with values per step gets those of the last step for the
    steps that the special case does not have.
    """
    algorithm = special.algorithms[0]
    if type(algorithm) is candidate.algorithm and candidate.schedule == "per step":
        algorithm = extend_steps(algorithm, max(special.steps))
    algorithms = [algorithm] * fit_target.layers
    return special._replace(candidate=candidate, fit_target=fit_target, algorithms=algorithms)


def extend_steps(algorithm: Algorithm[Any, Any], steps: int) -> Algorithm[Any, Any]:
    """Repeat the values of the last step until there are `steps`."""
    values = {}
    for part in list_free_parameters(algorithm):
        value = getattr(algorithm, part.name)
        if part.per_step and len(value) < steps:
            rest = value[-1:].repeat(steps - len(value), *[1] * (value.ndim - 1))
            values[part.name] = torch.cat([value, rest])
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def list_distinct(algorithms: Iterable[Algorithm[Any, Any]]) -> dict[int, Algorithm[Any, Any]]:
    """Return each object once, by its identity: layers far from a solution share a guess."""
    return {id(algorithm): algorithm for algorithm in algorithms}


def make_match(fit: Fit, scoring: Any) -> Match:
    """Return the match of a fitted candidate, with predictions on other prompts."""
    candidate, algorithms, steps = fit.candidate, fit.algorithms, fit.steps
    predictions = predict_fit(candidate, algorithms, steps, scoring)
    return Match(candidate, algorithms, steps, count_numbers(fit), predictions)


def predict_fit(
    candidate: Candidate,
    algorithms: Sequence[Algorithm[Any, Any]],
    steps: Sequence[int],
    problem: Any,
) -> LayerPredictions:
    """Return the predictions of the algorithm and the step that are fitted to each layer."""
    view = candidate.view(problem)
    with torch.no_grad():
        if candidate.schedule == "exact":
            distinct = list_distinct(algorithms)
            own = {key: predict_steps(a, view, 0)[0] for key, a in distinct.items()}
            return torch.stack([own[id(algorithm)] for algorithm in algorithms])
        return predict_at_steps(algorithms[0], view, steps)


def count_numbers(fit: Fit) -> int:
    """Return the number of free numbers of a candidate, by whatever method it was fitted."""
    algorithm, count = fit.algorithms[0], len(fit.steps)
    if type(algorithm) is fit.candidate.algorithm:
        each = len(pack_parameters(algorithm))
    elif fit.candidate.schedule == "per step":
        return len(pack_parameters(repeat_per_step(fit.candidate.guesses[0], max(fit.steps))))
    else:
        each = len(pack_parameters(fit.candidate.guesses[0]))
    return each * count if fit.candidate.schedule == "exact" else each
