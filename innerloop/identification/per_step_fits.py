"""Fits with values of their own at every step, from groups of guesses."""

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
    wanted: FitTarget,
    groups: Sequence[Sequence[Algorithm[Any, Any]]],
    few: FitTarget,
    rivals: Sequence[Fit],
) -> Fit:
    """Fit values per step to the layers of `few` from each group of guesses; return the best."""
    if wanted.layers == 1:
        least = float(find_least_costs(rivals)) if rivals else math.inf
        guesses = [guess for group in groups for guess in group]
        algorithm, count = fit_output(guesses, few, least)
        return measure_fit(candidate, wanted, [algorithm], [count])
    fits = []
    for group in groups:
        short = fit_stepwise(group, few, make_surrender(rivals, candidate))
        algorithm = extend_steps(short, wanted.layers)
        fits.append(
            measure_fit(
                candidate, wanted, [algorithm] * wanted.layers, assume_pace(wanted.layers, 1)
            )
        )
    return min(fits, key=lambda fit: float(fit.costs[: few.layers].clamp_max(10.0).sum()))
