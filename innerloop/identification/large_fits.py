"""Fits of candidates with a matrix for each step, which take most of the time.

They begin with the first layer only, and continue step after step unless other candidates are far
better. A special case that fits with certainty replaces the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate
from innerloop.identification.fits import Fit, adopt_fit, extend_steps, measure_fit
from innerloop.identification.fitting import (
    MANY_UNKNOWNS,
    FitTarget,
    count_prompts,
    fit_exactly,
    group_guesses,
    match_steps,
    sum_costs,
)
from innerloop.identification.hyper import pack_parameters, slice_steps
from innerloop.identification.per_step_fits import fit_groups
from innerloop.identification.rivals import (
    MATCH_COST,
    are_matched,
    find_special_case,
)
from innerloop.identification.shared import (
    CERTAIN_COST,
    PACES,
    TRIAL_ITERATIONS,
    SharedFit,
    assume_pace,
    fit_assignment,
    refit_shared,
)
from innerloop.identification.stepwise import fit_stepwise

FIRST_ITERATIONS, START_COST = 4, 0.1
"""Iterations on the first layer alone that decide whether many numbers are fitted to all of them,
and the cost of that layer above which they are not."""


def is_large(candidate: Candidate) -> bool:
    return len(pack_parameters(candidate.guesses[0])) > MANY_UNKNOWNS


def start_large(
    candidate: Candidate, fit_target: FitTarget, rivals: Iterable[Fit]
) -> tuple[float, list[list[Algorithm[Any, Any]]]]:
    """Fit one step of a large candidate to the first layer; return its cost and new guesses."""
    groups = group_guesses(candidate.guesses)
    known = find_special_case(candidate, rivals) is not None
    if known or candidate.schedule == "exact" or fit_target.layers == 1:
        return 0.0, groups
    few = fit_target.take_first(
        count_prompts(candidate.guesses[0], fit_target, "per step")
    ).take_layers(1)
    firsts, costs = [], []
    for group in groups:
        firsts.append(slice_steps(fit_stepwise(group, few), 0, 1))
        costs.append(float(few.tabulate_costs(firsts[-1], 1)[0, 1]))
        if costs[-1] < CERTAIN_COST:
            break
    best = costs.index(min(costs))
    return costs[best], [[firsts[best]]]


def fit_large(
    candidate: Candidate,
    fit_target: FitTarget,
    steps: int,
    rivals: Sequence[Fit],
    own: Sequence[Fit],
    start: tuple[float, Sequence[Sequence[Algorithm[Any, Any]]]],
) -> Fit:
    """Fit a candidate with many numbers; `own` has its fit with values per step, if there is one.

    If it contains another candidate that fits every layer, that candidate's fit is used. If it does
    not fit the first layer while others match every layer, it is not fitted any further.
    """
    cost, groups = start
    special = find_special_case(candidate, rivals)
    if special is not None:
        return adopt_fit(candidate, fit_target, special)
    few = fit_target.take_first(count_prompts(candidate.guesses[0], fit_target, candidate.schedule))
    if candidate.schedule == "exact":
        return measure_fit(
            candidate, fit_target, fit_exactly(candidate.guesses, few, START_COST), []
        )
    if cost > START_COST and are_matched(rivals):
        first, pace = groups[0][0], assume_pace(fit_target.layers, 1)
        if candidate.schedule == "per step":
            first = extend_steps(first, fit_target.layers)
        return measure_fit(candidate, fit_target, [first] * fit_target.layers, pace)
    if candidate.schedule == "per step":
        return fit_groups(candidate, fit_target, groups, few, rivals)
    best = _fit_large_shared(groups, few, min(steps, max(PACES) * fit_target.layers), rivals, own)
    return measure_fit(candidate, fit_target, [best.algorithm] * fit_target.layers, best.steps)


def _fit_large_shared(
    groups: Sequence[Sequence[Algorithm[Any, Any]]],
    fit_target: FitTarget,
    steps: int,
    rivals: Sequence[Fit],
    own: Sequence[Fit],
) -> SharedFit:
    """Fit many numbers that all steps share, from those of the first step where they are known."""
    starts = [
        min(group, key=lambda guess: float(fit_target.tabulate_costs(guess, 1)[0, 1]))
        for group in groups
    ]
    if own and fit_target.layers > 1:
        starts = [slice_steps(own[0].algorithms[0], 0, 1)]
    matched = are_matched(rivals)
    trials = []
    for start in starts:
        for pace in PACES:
            if pace * fit_target.layers > steps:
                continue
            belief = assume_pace(fit_target.layers, pace)
            # A first layer that cannot be matched is known by itself, much faster than with all.
            trial = fit_assignment(
                start, belief[:1], fit_target.take_layers(1), pace, FIRST_ITERATIONS
            )
            if trial.cost < START_COST:
                trial = fit_assignment(trial.algorithm, belief, fit_target, steps, TRIAL_ITERATIONS)
            else:
                table = fit_target.tabulate_costs(trial.algorithm, steps)
                found = match_steps(table)
                trial = SharedFit(sum_costs(table, found), found, trial.algorithm)
            trials.append(trial)
            if matched or trial.cost < MATCH_COST * fit_target.layers:
                break
    best = min(trials, key=lambda trial: trial.cost)
    return (
        refit_shared(best, fit_target, steps)
        if best.cost < START_COST * fit_target.layers
        else best
    )
