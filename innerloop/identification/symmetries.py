"""Symmetries of a model that a candidate does not have: whether the order of examples matters.

Both answer the same prompts with the examples in reverse order. If the answers of a model stay the
same, it does not run an algorithm that takes one example after another, however near the answers
are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from innerloop.errors import InputError
from innerloop.identification.fits import predict_fit
from innerloop.identification.measures import FLOOR, LayerPredictions
from innerloop.identification.models import Model, predict_layers
from innerloop.identification.scores import Match
from innerloop.problems.linear_regression import RegressionProblem

COMPARED_PROMPTS = 64
LEAST_CHANGE, MUCH_MORE = 1e-6, 100.0
"""A candidate depends on the order where its answers change by more than the first share of a
layer's power, and by more than the second number of times what the layer's own answers change."""


def drop_unshared(matches: list[Match], model: Model, problem: Any) -> list[Match]:
    """Return the candidates without those that depend on the order of examples while the model
    does not.
    """
    if not isinstance(problem, RegressionProblem) or problem.n < 2:
        return matches
    few = problem[:COMPARED_PROMPTS]
    reverse = replace(few, x=few.x.flip(-2), y=few.y.flip(-1))
    try:
        before = predict_layers(model, few)
        changes = measure_change(before, predict_layers(model, reverse))
    except InputError:  # a model that takes no other prompts
        return matches
    sharing = [
        match for match in matches if not _depends_more(match, few, reverse, before, changes)
    ]
    return sharing or matches


def measure_change(before: LayerPredictions, after: LayerPredictions) -> Float[Tensor, " layers"]:
    """Return E ‖after − before‖² / E ‖before‖², with the last layer's power as a floor."""
    power = before.square().sum(dim=(1, 2))
    floor = (FLOOR * power[-1]).clamp_min(1e-300)
    return (after - before).square().sum(dim=(1, 2)) / power.clamp_min(floor)


def _depends_more(
    match: Match,
    problem: RegressionProblem,
    reverse: RegressionProblem,
    model: LayerPredictions,
    changes: Float[Tensor, " layers"],
) -> bool:
    """Tell whether a candidate's answers change much more than the model's at some layer."""
    try:
        before, after = (
            predict_fit(match.candidate, match.algorithms, match.steps, each)
            for each in (problem, reverse)
        )
    except (InputError, LinAlgError):
        return False
    # In units of the model's power, so that a candidate that diverges is not excused.
    own = measure_change(model, model + after - before).nan_to_num(0.0)
    return bool(((own > LEAST_CHANGE) & (own > MUCH_MORE * changes)).any())
