"""Fits of candidates with separate values for every step, from groups of guesses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate
from innerloop.identification.fits import Fit, extend_steps, measure_fit
from innerloop.identification.fitting import FitTarget
from innerloop.identification.rivals import find_least_costs, make_surrender
from innerloop.identification.shared import assume_pace
from innerloop.identification.stepwise import fit_output, fit_stepwise


def fit_groups(
    candidate: Candidate,
    fit_target: FitTarget,
    groups: Sequence[Sequence[Algorithm[Any, Any]]],
    few: FitTarget,
    rivals: Sequence[Fit],
) -> Fit:
    """Fit separate values for every step from each group of guesses; return the fit of least cost.

    The fits use `few`, which has some of the prompts and layers of `fit_target`; the steps of later
    layers repeat the last values. A model with a single layer is fitted by several steps at once. A
    fit may end early if `rivals`, the fits of other candidates, are much better.
    """
    if fit_target.layers == 1:
        least = float(find_least_costs(rivals)) if rivals else math.inf
        guesses = [guess for group in groups for guess in group]
        algorithm, count = fit_output(guesses, few, least)
        return measure_fit(candidate, fit_target, [algorithm], [count])
    fits = []
    for group in groups:
        short = fit_stepwise(group, few, make_surrender(rivals, candidate))
        algorithm = extend_steps(short, fit_target.layers)
        fits.append(
            measure_fit(
                candidate,
                fit_target,
                [algorithm] * fit_target.layers,
                assume_pace(fit_target.layers, 1),
            )
        )
    return min(fits, key=lambda fit: float(fit.costs[: few.layers].clamp_max(10.0).sum()))
