"""Fits of many candidates: all are screened by brief fits, and the best of them fitted in full.

Most candidates are far from most models, and a full fit of them is wasted. Each candidate is
therefore fitted briefly, to few prompts. Only those among the best at some layer, or near it, are
fitted in full: first those that are almost exact, then candidates with a matrix for each step
(large_fits.py), then the others. All other candidates keep their brief fits. With `exhaustive`, all
are fitted in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate, find_generalisations
from innerloop.identification.fits import Fit, adopt_fit, make_match, measure_fit
from innerloop.identification.fitting import (
    MIN_PROMPTS,
    FitTarget,
    count_prompts,
    fit_exactly,
    fit_numbers,
    group_guesses,
)
from innerloop.identification.hyper import average_steps, list_free_parameters, slice_steps
from innerloop.identification.large_fits import fit_large, is_large, start_large
from innerloop.identification.marquardt import PERFECT_COST
from innerloop.identification.per_step_fits import fit_groups
from innerloop.identification.rivals import find_special_case, is_exact, is_left_behind, is_settled
from innerloop.identification.scaled import fit_scaled
from innerloop.identification.scores import EXACT_MISS, RESOLUTION, Match
from innerloop.identification.shared import (
    HOPELESS_COST,
    TRIAL_ITERATIONS,
    SharedFit,
    StepSearch,
    refit_best,
    search_steps,
    try_assignments,
)
from innerloop.progress import Progress

SCREENED_PROMPTS, SCREENED_LAYERS, SCREENED_STEPS = 32, 3, 32
"""Prompts, layers of candidates with values per step, and steps of the others, that a candidate is
screened on."""
KEPT_OVERALL, KEPT_PER_LAYER, KEPT_COST = 6, 2, 1e-2
"""Fitted in full are this many candidates of the least cost, this many for each layer, and those
whose cost per layer is below this."""


def fit_candidates(
    found: Sequence[Candidate],
    fit_target: FitTarget,
    scoring: Any,
    steps: int,
    progress: Progress | None = None,
    *,
    exhaustive: bool = False,
) -> list[Match]:
    """Fit candidates on one set of prompts, and predict with them on another.

    At most `steps` steps of an iteration are matched with a layer.
    """
    seen = [replace(fit_target, problem=c.view(fit_target.problem)) for c in found]
    small = [k for k, candidate in enumerate(found) if not is_large(candidate)]
    large = [k for k, candidate in enumerate(found) if is_large(candidate)]
    fits: dict[int, Fit] = {}
    done = set[int]()
    for k in _track(_order_screening(small, found), found, progress, 0.0, 0.4):
        rivals = [] if exhaustive else list(fits.values())
        special = find_special_case(found[k], rivals)
        if special is not None:
            fits[k] = adopt_fit(found[k], seen[k], special)
            done.add(k)
            continue
        fits[k] = _screen(found[k], seen[k], steps, rivals)
        if not exhaustive and float(fits[k].costs.max()) < KEPT_COST:
            fits[k] = _fit_in_full(fits[k], steps, rivals)
            done.add(k)
    remaining = [k for k in (small if exhaustive else _select_best(fits)) if k not in done]
    by_name: dict[str, tuple[float, list[list[Algorithm[Any, Any]]]]] = {}
    for k in large:
        if found[k].name not in by_name:
            by_name[found[k].name] = start_large(found[k], seen[k], fits.values())
    starts = {k: by_name[found[k].name] for k in large}
    # The nearest at the first layer goes first: the others end when they fall behind it. Values per
    # step come before values that all steps share, which start from them.
    large.sort(key=lambda k: (starts[k][0], found[k].name, found[k].schedule != "per step"))
    for k in _track(large, found, progress, 0.4, 0.9):
        rivals = [] if exhaustive else list(fits.values())
        own = [fit for fit in fits.values() if fit.candidate.name == found[k].name]
        fits[k] = fit_large(found[k], seen[k], steps, rivals, own, starts[k])
    for k in _track(remaining, found, progress, 0.9, 1.0):
        rivals = [] if exhaustive else list(fits.values())
        if not is_left_behind(fits[k], rivals):
            fits[k] = _fit_in_full(fits[k], steps, rivals)
    if not exhaustive:
        fits |= _share_values(fits)
        fits |= dict(enumerate(fit_scaled(list(fits.values()), steps), len(found)))
    return [make_match(fits[k], scoring) for k in sorted(fits)]


def _share_values(fits: dict[int, Fit]) -> dict[int, Fit]:
    """Fit values for all steps from the mean of exact values per step; return what improves."""
    exact = {
        fit.candidate.name: fit
        for fit in fits.values()
        if fit.candidate.schedule == "per step" and is_exact(fit)
    }
    better = {}
    for k, fit in fits.items():
        own = exact.get(fit.candidate.name)
        if own is None or fit.candidate.schedule != "one for all" or is_exact(fit):
            continue
        mean = average_steps(own.algorithms[0])
        few = fit.fit_target.take_first(count_prompts(mean, fit.fit_target, "one for all"))
        shared = fit_numbers(mean, few, range(few.layers), own.steps)
        trial = measure_fit(fit.candidate, fit.fit_target, [shared] * few.layers, own.steps)
        if float(trial.costs.sum()) < float(fit.costs.sum()):
            better[k] = trial
    return better


def find_fitting_steps(match: Match, target: FitTarget, steps: int) -> tuple[int, int] | None:
    """Return the fewest and the most steps that fit a single output as well as those of a match.

    Return None if no others do, and for candidates without steps or without free numbers.
    """
    algorithm, schedule = match.algorithms[0], match.candidate.schedule
    if target.layers > 1 or schedule != "one for all" or not list_free_parameters(algorithm):
        return None
    view = match.candidate.view(target.problem)
    few = replace(target, problem=view).take_first(count_prompts(algorithm, target, schedule))
    (step,) = match.steps
    cost = float(few.tabulate_costs(algorithm, step)[0, step])
    search = StepSearch(SharedFit(cost, [step], algorithm), few, max(steps, step))
    # Beside an exact fit only those count that are as exact, up to rounding.
    tied = 100 * max(cost, PERFECT_COST) if cost <= EXACT_MISS else cost + RESOLUTION
    interval = search.find_interval(tied) if step else (step, step)
    return None if interval == (step, step) else interval


def _track(
    order: Sequence[int],
    found: Sequence[Candidate],
    progress: Progress | None,
    first: float,
    last: float,
) -> Iterator[int]:
    """Iterate over candidates, and report each before its turn."""
    for place, k in enumerate(order):
        if progress is not None:
            progress(first + (last - first) * place / len(order), found[k].label)
        yield k


def _order_screening(places: Sequence[int], found: Sequence[Candidate]) -> list[int]:
    """Order candidates so that special cases come before what contains them."""
    schedules = {"exact": 0, "one for all": 1, "per step": 2}

    def rank(k: int) -> tuple[int, int, int]:
        general = find_generalisations(found[k].algorithm)
        return schedules[found[k].schedule], -len(general), k

    return sorted(places, key=rank)


def _screen(candidate: Candidate, fit_target: FitTarget, steps: int, rivals: Sequence[Fit]) -> Fit:
    """Fit a candidate briefly."""
    if candidate.schedule == "exact":
        few = fit_target.take_first(SCREENED_PROMPTS)
        fits = fit_exactly(candidate.guesses, few, HOPELESS_COST, TRIAL_ITERATIONS)
        return measure_fit(candidate, fit_target, fits, [])
    groups = group_guesses(candidate.guesses)
    if candidate.schedule == "one for all":
        few = fit_target.take_first(SCREENED_PROMPTS)
        trials = try_assignments(groups, few, min(steps, SCREENED_STEPS))
        fit = measure_fit(
            candidate, fit_target, [trials[0].algorithm] * fit_target.layers, trials[0].steps
        )
        return fit._replace(trials=trials)
    few = fit_target.take_first(MIN_PROMPTS).take_layers(SCREENED_LAYERS)
    return fit_groups(candidate, fit_target, groups, few, rivals)


def _select_best(fits: dict[int, Fit]) -> list[int]:
    """Select the candidates worth a full fit: best overall, best at a layer, or nearly a match."""
    places = list(fits)
    costs = torch.stack([fits[k].costs.clamp_max(10.0) for k in places])
    totals = costs.mean(dim=-1)
    # Per step, the layers that were not screened say nothing.
    screened = torch.stack([fits[k].costs[:SCREENED_LAYERS].clamp_max(10.0) for k in places])
    firsts = screened.mean(dim=-1)
    best = set(totals.argsort()[:KEPT_OVERALL].tolist())
    best |= set(firsts.argsort()[:KEPT_OVERALL].tolist())
    best |= set(costs.argsort(dim=0)[:KEPT_PER_LAYER].flatten().tolist())
    best |= set(torch.nonzero(torch.minimum(totals, firsts) < KEPT_COST).flatten().tolist())
    return [places[k] for k in sorted(best)]


def _fit_in_full(fit: Fit, steps: int, rivals: Sequence[Fit]) -> Fit:
    """Fit a candidate on from its brief fit."""
    candidate, fit_target = fit.candidate, fit.fit_target
    few = fit_target.take_first(count_prompts(fit.algorithms[0], fit_target, candidate.schedule))
    if candidate.schedule == "per step" and fit_target.layers == 1:
        return fit
    if candidate.schedule == "exact":
        fits = fit_exactly(candidate.guesses, few, HOPELESS_COST)
        return measure_fit(candidate, fit_target, fits, [])
    if candidate.schedule == "one for all":
        better = refit_best(fit.trials, few, steps)
        if not is_settled(fit, rivals):
            better = search_steps(better, few, steps)
        return measure_fit(
            candidate, fit_target, [better.algorithm] * fit_target.layers, better.steps
        )
    start = slice_steps(fit.algorithms[0], 0, 1)
    return fit_groups(candidate, fit_target, [[start]], few, rivals)
