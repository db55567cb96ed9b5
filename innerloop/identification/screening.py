"""Fits of many candidates: all are screened by cheap fits, and the best of them fitted in full.

Most candidates are far from most models, and a fit of them is wasted. So each is fitted briefly, to
few prompts, and only those among the best at some layer, or near it, are fitted on. Candidates with
a matrix for each step, whose fits take most of the time, come last: step after step, until they
fall behind what another candidate has reached. Candidates that are left behind keep their brief
fits. With `exhaustive` all are fitted in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate, find_generalisations
from innerloop.identification.fitting import (
    MANY_UNKNOWNS,
    MIN_PROMPTS,
    FitTarget,
    count_prompts,
    fit_exactly,
    group_guesses,
    match_steps,
    sum_costs,
)
from innerloop.identification.hyper import (
    list_free_parameters,
    pack_parameters,
    predict_at_steps,
    predict_steps,
    repeat_per_step,
    slice_steps,
)
from innerloop.identification.shared import (
    EXACT_COST,
    HOPELESS_COST,
    PACES,
    TRIAL_ITERATIONS,
    SharedFit,
    assume_pace,
    fit_assignment,
    refit_best,
    refit_shared,
    try_assignments,
)
from innerloop.identification.stepwise import fit_output, fit_stepwise, never
from innerloop.identification.verdict import Match
from innerloop.progress import Progress

SCREENED_PROMPTS, SCREENED_LAYERS, SCREENED_STEPS = 32, 3, 32
"""Prompts, layers of candidates with values per step, and steps of the others, that a candidate is
screened on."""
KEPT_OVERALL, KEPT_PER_LAYER, KEPT_COST = 6, 2, 1e-2
"""Fitted in full are this many candidates of the least cost, this many for each layer, and those
whose cost per layer is below this."""
DOMINATED, MATCH_COST, STRIKES = 30.0, 1e-3, 2
"""A fit step after step ends at this many layers in a row whose cost is hopeless, or above that of
a match and this many times the least cost of another candidate."""
MATCHED_PROMPTS = 256
"""Prompts that tell which step matches a layer best."""
FIRST_ITERATIONS, START_COST = 4, 0.1
"""Iterations on the first layer alone that decide whether many numbers are fitted to all of them,
and the cost of that layer above which they are not."""


class Fit(NamedTuple):
    """A candidate, what it is fitted to, and its fit so far with its cost at each layer.

    `trials` are the brief fits that values shared by all steps are fitted on from.
    """

    candidate: Candidate
    wanted: FitTarget
    algorithms: list[Algorithm[Any, Any]]
    steps: list[int]
    costs: Float[Tensor, " layers"]
    trials: Sequence[SharedFit] = ()


def fit_candidates(
    found: Sequence[Candidate],
    wanted: FitTarget,
    scoring: Any,
    steps: int,
    progress: Progress | None = None,
    *,
    exhaustive: bool = False,
) -> list[Match]:
    """Fit candidates on one set of prompts, and predict with them on another.

    At most `steps` steps of an iteration are matched with a layer.
    """
    seen = [FitTarget(c.view(wanted.problem), wanted.model, wanted.scale) for c in found]
    small = [k for k, candidate in enumerate(found) if not _is_large(candidate)]
    large = [k for k, candidate in enumerate(found) if _is_large(candidate)]
    fits: dict[int, Fit] = {}
    done = set[int]()
    for k in _track(_order_screening(small, found), found, progress, 0.0, 0.4):
        rivals = [] if exhaustive else list(fits.values())
        special = _find_special_case(found[k], rivals)
        if special is not None:
            fits[k] = _adopt(found[k], seen[k], special)
            done.add(k)
            continue
        fits[k] = _screen(found[k], seen[k], steps, rivals)
        if not exhaustive and float(fits[k].costs.max()) < KEPT_COST:
            fits[k] = _fit_in_full(fits[k], steps, rivals)
            done.add(k)
    kept = [k for k in (small if exhaustive else _select_best(fits)) if k not in done]
    for k in _track(kept, found, progress, 0.4, 0.6):
        fits[k] = _fit_in_full(fits[k], steps, [] if exhaustive else list(fits.values()))
    by_name: dict[str, tuple[float, list[list[Algorithm[Any, Any]]]]] = {}
    for k in large:
        if found[k].name not in by_name:
            by_name[found[k].name] = _start_large(found[k], seen[k], fits.values())
    starts = {k: by_name[found[k].name] for k in large}
    # The nearest at the first layer goes first: the others end when they fall behind it. Values per
    # step come before values that all steps share, which start from them.
    large.sort(key=lambda k: (starts[k][0], found[k].name, found[k].schedule != "per step"))
    for k in _track(large, found, progress, 0.6, 1.0):
        rivals = [] if exhaustive else list(fits.values())
        own = [fit for fit in fits.values() if fit.candidate.name == found[k].name]
        fits[k] = _fit_large(found[k], seen[k], steps, rivals, own, starts[k])
    return [_make_match(fits[k], scoring) for k in range(len(found))]


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


def _adopt(candidate: Candidate, wanted: FitTarget, special: Fit) -> Fit:
    """Return the fit of a special case as that of a candidate that contains it."""
    algorithm = special.algorithms[0]
    if type(algorithm) is candidate.algorithm and candidate.schedule == "per step":
        algorithm = extend_steps(algorithm, max(special.steps))
    algorithms = [algorithm] * wanted.layers
    return special._replace(candidate=candidate, wanted=wanted, algorithms=algorithms)


def _is_large(candidate: Candidate) -> bool:
    return len(pack_parameters(candidate.guesses[0])) > MANY_UNKNOWNS


def _screen(candidate: Candidate, wanted: FitTarget, steps: int, rivals: Sequence[Fit]) -> Fit:
    """Fit a candidate briefly."""
    if candidate.schedule == "exact":
        few = wanted.take_first(SCREENED_PROMPTS)
        fits = fit_exactly(candidate.guesses, few, HOPELESS_COST, TRIAL_ITERATIONS)
        return _measure(candidate, wanted, fits, [])
    groups = group_guesses(candidate.guesses)
    if candidate.schedule == "one for all":
        few = wanted.take_first(SCREENED_PROMPTS)
        trials = try_assignments(groups, few, min(steps, SCREENED_STEPS))
        fit = _measure(candidate, wanted, [trials[0].algorithm] * wanted.layers, trials[0].steps)
        return fit._replace(trials=trials)
    few = wanted.take_first(MIN_PROMPTS).take_layers(SCREENED_LAYERS)
    return _fit_groups(candidate, wanted, groups, few, rivals)


def _fit_groups(
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
        return _measure(candidate, wanted, [algorithm], [count])
    fits = []
    for group in groups:
        short = fit_stepwise(group, few, make_surrender(rivals, candidate))
        algorithm = extend_steps(short, wanted.layers)
        fits.append(
            _measure(candidate, wanted, [algorithm] * wanted.layers, assume_pace(wanted.layers, 1))
        )
    return min(fits, key=lambda fit: float(fit.costs[: few.layers].clamp_max(10.0).sum()))


def _select_best(fits: dict[int, Fit]) -> list[int]:
    """Select the candidates worth a full fit: best overall, best at a layer, or nearly a match."""
    places = list(fits)
    costs = torch.stack([fits[k].costs.clamp_max(10.0) for k in places])
    totals = costs.mean(dim=-1)
    # Per step, the layers that were not screened say nothing.
    screened = torch.stack([fits[k].costs[:SCREENED_LAYERS].clamp_max(10.0) for k in places])
    firsts = screened.mean(dim=-1)
    kept = set(totals.argsort()[:KEPT_OVERALL].tolist())
    kept |= set(firsts.argsort()[:KEPT_OVERALL].tolist())
    kept |= set(costs.argsort(dim=0)[:KEPT_PER_LAYER].flatten().tolist())
    kept |= set(torch.nonzero(torch.minimum(totals, firsts) < KEPT_COST).flatten().tolist())
    return [places[k] for k in sorted(kept)]


def _fit_in_full(fit: Fit, steps: int, rivals: Sequence[Fit]) -> Fit:
    """Fit a candidate on from its brief fit."""
    candidate, wanted = fit.candidate, fit.wanted
    few = wanted.take_first(count_prompts(fit.algorithms[0], wanted, candidate.schedule))
    if candidate.schedule == "per step" and wanted.layers == 1:
        return fit
    if candidate.schedule == "exact":
        fits = fit_exactly(candidate.guesses, few, HOPELESS_COST)
        return _measure(candidate, wanted, fits, [])
    if candidate.schedule == "one for all":
        better = refit_best(fit.trials, few, steps)
        return _measure(candidate, wanted, [better.algorithm] * wanted.layers, better.steps)
    start = slice_steps(fit.algorithms[0], 0, 1)
    return _fit_groups(candidate, wanted, [[start]], few, rivals)


def _start_large(
    candidate: Candidate, wanted: FitTarget, rivals: Iterable[Fit]
) -> tuple[float, list[list[Algorithm[Any, Any]]]]:
    """Fit a step of a large candidate to the first layer; return its cost, and where to go on."""
    groups = group_guesses(candidate.guesses)
    known = _find_special_case(candidate, rivals) is not None
    if known or candidate.schedule == "exact" or wanted.layers == 1:
        return 0.0, groups
    few = wanted.take_first(count_prompts(candidate.guesses[0], wanted, "per step")).take_layers(1)
    firsts = [slice_steps(fit_stepwise(group, few), 0, 1) for group in groups]
    costs = [float(few.tabulate_costs(first, 1)[0, 1]) for first in firsts]
    best = costs.index(min(costs))
    return costs[best], [[firsts[best]]]


def _find_special_case(candidate: Candidate, rivals: Iterable[Fit]) -> Fit | None:
    """Find a candidate that another contains and that fits every layer: so does the other.

    A solution without steps has values of its own at each layer, which no iteration has.
    """
    certain = (fit for fit in rivals if float(fit.costs.max()) < EXACT_COST)
    inside = (fit for fit in certain if fit.candidate.schedule != "exact")
    return next((fit for fit in inside if candidate.contains(fit.candidate)), None)


def _fit_large(
    candidate: Candidate,
    wanted: FitTarget,
    steps: int,
    rivals: Sequence[Fit],
    own: Sequence[Fit],
    start: tuple[float, Sequence[Sequence[Algorithm[Any, Any]]]],
) -> Fit:
    """Fit a candidate with many numbers; `own` has its fit with values per step, if there is one.

    Where it contains another candidate that fits every layer, it fits as that one does. Where it
    misses the first layer, and others match every layer, it is left at that.
    """
    cost, groups = start
    special = _find_special_case(candidate, rivals)
    if special is not None:
        return _adopt(candidate, wanted, special)
    few = wanted.take_first(count_prompts(candidate.guesses[0], wanted, candidate.schedule))
    if candidate.schedule == "exact":
        return _measure(candidate, wanted, fit_exactly(candidate.guesses, few, START_COST), [])
    if cost > START_COST and _are_matched(rivals):
        first, pace = groups[0][0], assume_pace(wanted.layers, 1)
        if candidate.schedule == "per step":
            first = extend_steps(first, wanted.layers)
        return _measure(candidate, wanted, [first] * wanted.layers, pace)
    if candidate.schedule == "per step":
        return _fit_groups(candidate, wanted, groups, few, rivals)
    best = _fit_large_shared(groups, few, min(steps, max(PACES) * wanted.layers), rivals, own)
    return _measure(candidate, wanted, [best.algorithm] * wanted.layers, best.steps)


def _fit_large_shared(
    groups: Sequence[Sequence[Algorithm[Any, Any]]],
    wanted: FitTarget,
    steps: int,
    rivals: Sequence[Fit],
    own: Sequence[Fit],
) -> SharedFit:
    """Fit many numbers that all steps share, from those of the first step where they are known."""
    starts = [
        min(group, key=lambda guess: float(wanted.tabulate_costs(guess, 1)[0, 1]))
        for group in groups
    ]
    if own and wanted.layers > 1:
        starts = [slice_steps(own[0].algorithms[0], 0, 1)]
    matched = _are_matched(rivals)
    trials = []
    for start in starts:
        for pace in PACES:
            if pace * wanted.layers > steps:
                continue
            belief = assume_pace(wanted.layers, pace)
            # A first layer that cannot be matched is known by itself, much faster than with all.
            trial = fit_assignment(start, belief[:1], wanted.take_layers(1), pace, FIRST_ITERATIONS)
            if trial.cost < START_COST:
                trial = fit_assignment(trial.algorithm, belief, wanted, steps, TRIAL_ITERATIONS)
            else:
                table = wanted.tabulate_costs(trial.algorithm, steps)
                found = match_steps(table)
                trial = SharedFit(sum_costs(table, found), found, trial.algorithm)
            trials.append(trial)
            if matched or trial.cost < MATCH_COST * wanted.layers:
                break
    best = min(trials, key=lambda trial: trial.cost)
    return refit_shared(best, wanted, steps) if best.cost < START_COST * wanted.layers else best


def find_least_costs(fits: Sequence[Fit]) -> Float[Tensor, " layers"]:
    """Return the least cost of any candidate at each layer."""
    return torch.stack([fit.costs for fit in fits]).amin(dim=0)


def _are_matched(fits: Sequence[Fit]) -> bool:
    """Tell whether every layer is matched by some candidate."""
    return bool(fits) and float(find_least_costs(fits).max()) < MATCH_COST


def make_surrender(rivals: Sequence[Fit], candidate: Candidate) -> Callable[[int, float], bool]:
    """Make the rule by which a fit step after step ends early: see `STRIKES`."""
    others = [fit for fit in rivals if fit.candidate is not candidate]
    least = find_least_costs(others).tolist() if others else None
    strikes = 0

    def surrender(layer: int, cost: float) -> bool:
        nonlocal strikes
        limit = HOPELESS_COST
        if least is not None:
            limit = min(limit, max(MATCH_COST, DOMINATED * least[layer]))
        strikes = strikes + 1 if not cost <= limit else 0
        return strikes >= STRIKES

    return surrender if rivals else never


def extend_steps(algorithm: Algorithm[Any, Any], steps: int) -> Algorithm[Any, Any]:
    """Repeat the values of the last step until there are `steps`."""
    values = {}
    for part in list_free_parameters(algorithm):
        value = getattr(algorithm, part.name)
        if part.per_step and len(value) < steps:
            rest = value[-1:].repeat(steps - len(value), *[1] * (value.ndim - 1))
            values[part.name] = torch.cat([value, rest])
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def _measure(
    candidate: Candidate,
    wanted: FitTarget,
    algorithms: list[Algorithm[Any, Any]],
    steps: list[int],
) -> Fit:
    """Measure the cost of a fit at each layer; `one for all`, find the steps that match best."""
    few, each = wanted.take_first(MATCHED_PROMPTS), range(wanted.layers)
    with torch.no_grad():
        if candidate.schedule == "exact":
            steps = [0] * wanted.layers
            tables = {key: few.tabulate_costs(a, 0) for key, a in list_distinct(algorithms).items()}
            costs = torch.stack([tables[id(algorithms[k])][k, 0] for k in each])
        else:
            table = few.tabulate_costs(algorithms[0], max(steps))
            if candidate.schedule == "one for all":
                steps = match_steps(table)
            costs = table[each, steps]
    return Fit(candidate, wanted, algorithms, steps, costs)


def list_distinct(algorithms: Iterable[Algorithm[Any, Any]]) -> dict[int, Algorithm[Any, Any]]:
    """Return each object once, by its identity: layers far from a solution share a guess."""
    return {id(algorithm): algorithm for algorithm in algorithms}


def _make_match(fit: Fit, scoring: Any) -> Match:
    """Predict with a fitted candidate on other prompts."""
    candidate, view = fit.candidate, fit.candidate.view(scoring)
    with torch.no_grad():
        if candidate.schedule == "exact":
            own = {
                key: predict_steps(a, view, 0)[0]
                for key, a in list_distinct(fit.algorithms).items()
            }
            rows = [own[id(algorithm)] for algorithm in fit.algorithms]
        else:
            rows = list(predict_at_steps(fit.algorithms[0], view, fit.steps))
    return Match(candidate, fit.algorithms, fit.steps, _count_numbers(fit), torch.stack(rows))


def _count_numbers(fit: Fit) -> int:
    """Count the free numbers of a candidate, whatever it was fitted by."""
    algorithm, count = fit.algorithms[0], len(fit.steps)
    if type(algorithm) is fit.candidate.algorithm:
        each = len(pack_parameters(algorithm))
    elif fit.candidate.schedule == "per step":
        return len(pack_parameters(repeat_per_step(fit.candidate.guesses[0], max(fit.steps))))
    else:
        each = len(pack_parameters(fit.candidate.guesses[0]))
    return each * count if fit.candidate.schedule == "exact" else each
