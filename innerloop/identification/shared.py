"""Fits of an iteration with the same values at every step; the step of each layer is found too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from innerloop.algorithms.base import Algorithm
from innerloop.identification.fitting import (
    FITTED_LAYERS,
    FitTarget,
    fit_numbers,
    match_steps,
    sum_costs,
)
from innerloop.identification.hyper import list_free_parameters
from innerloop.identification.marquardt import MAX_ITERATIONS, PERFECT_COST

PACES = (1, 2)
"""Steps per layer that fits start from, besides each layer's own best match."""
SINGLE_LAYER_STARTS = (1, 2, 3, 4, 6, 8, 12)
"""For a model with a single layer, which may be any step: fits start from these steps."""
TRIAL_ITERATIONS, MAX_REFITS = 10, 3
"""Iterations that each assignment of steps to layers is tried for, and refits of the best one."""
PROMISING_COST, EXACT_COST, HOPELESS_COST = 1e-4, 1e-9, 0.5
"""Costs per layer below which no other assignment is tried, with several layers and with one, and
above which none is refitted."""
SEARCHED_COST, SEARCHED_SINGLE_COST, MAX_SEARCHED = 0.01, 0.2, 24
"""Other numbers of steps are tried for fits of less cost per layer: the limits for several layers
and for a single one, and the largest number of tries. Nothing but its own fit shows the step of a
single layer."""
CERTAIN_COST, RIVAL_TRIAL, MAX_REFITTED = 1e-6, 10.0, 3
"""A fit of this cost per layer is right. Otherwise further assignments are fitted on, whose trials
cost at most this many times that of the best, until this many are."""


class SharedFit(NamedTuple):
    """A fit with the same values at every step: its cost, each layer's step, and the algorithm."""

    cost: float
    steps: list[int]
    algorithm: Algorithm[Any, Any]


def fit_shared(
    groups: Sequence[Sequence[Algorithm[Any, Any]]], fit_target: FitTarget, steps: int
) -> SharedFit:
    """Fit from several assignments of steps to layers: each is tried, the best ones refitted."""
    return refit_best(try_assignments(groups, fit_target, steps), fit_target, steps)


def try_assignments(
    groups: Sequence[Sequence[Algorithm[Any, Any]]], fit_target: FitTarget, steps: int
) -> list[SharedFit]:
    """Fit briefly from several assignments of steps to layers; return them, the best first."""
    tables = [fit_target.tabulate_guesses(group, steps) for group in groups]
    tried = []
    paces = PACES if fit_target.layers > 1 else SINGLE_LAYER_STARTS
    for pace in (*paces, None):
        for group, own in zip(groups, tables, strict=True):
            nearest = min(own, key=lambda table: sum_costs(table, match_steps(table)))
            belief = match_steps(nearest) if pace is None else assume_pace(fit_target.layers, pace)
            if max(belief) <= steps:
                costs = [sum_costs(table, belief) for table in own]
                start = group[costs.index(min(costs))]
                # A single layer is tried with every number of steps, so that no more are needed.
                most = steps if fit_target.layers > 1 else max(belief)
                tried.append(fit_assignment(start, belief, fit_target, most, TRIAL_ITERATIONS))
        best = min(tried, key=lambda each: each.cost)
        # A single layer may be any step, and a step too few may come near it.
        enough = PROMISING_COST if fit_target.layers > 1 else EXACT_COST
        if best.cost < enough * fit_target.layers:
            break
    return sorted(tried, key=lambda each: each.cost)


def refit_best(trials: Sequence[SharedFit], fit_target: FitTarget, steps: int) -> SharedFit:
    """Continue the fit from the best trial, and from others that are nearly as good unless that
    fits.
    """
    best, seen = refit_shared(trials[0], fit_target, steps), [trials[0].steps]
    for trial in trials[1:]:
        near = trial.cost < RIVAL_TRIAL * trials[0].cost and trial.steps not in seen
        if near and best.cost > CERTAIN_COST * fit_target.layers and len(seen) < MAX_REFITTED:
            best = min(best, refit_shared(trial, fit_target, steps), key=lambda fit: fit.cost)
            seen.append(trial.steps)
    return best


def refit_shared(fit: SharedFit, fit_target: FitTarget, steps: int) -> SharedFit:
    """Repeat the fit until the steps that match the layers stay the same."""
    for _ in range(MAX_REFITS):
        if not PERFECT_COST < fit.cost / fit_target.layers < HOPELESS_COST:
            break
        before = fit.steps
        fit = fit_assignment(fit.algorithm, before, fit_target, steps, MAX_ITERATIONS)
        if fit.steps == before:
            break
    return fit


class StepSearch:
    """Fits of an algorithm for different numbers of steps, from a first fit.

    Many short steps come near few long ones (ηk ≈ constant for gradient descent), so that a fit for
    one number of steps says little of another: each is fitted until it converges, from the nearest
    one that is known. Steps of several layers stay in proportion: 7, 14, 21 become 8, 16, 24.
    """

    def __init__(self, fit: SharedFit, target: FitTarget, steps: int) -> None:
        self.target, self.steps = target, steps
        self.first = math.gcd(*fit.steps)
        self.pattern = [step // self.first for step in fit.steps]
        self.most = steps // max(self.pattern)
        self.fits = {self.first: fit}

    def fit_count(self, count: int) -> SharedFit:
        """Return the fit for this multiple of the pattern of steps."""
        if count not in self.fits:
            near = min(self.fits, key=lambda known: abs(math.log(known / count)))
            belief = [step * count for step in self.pattern]
            start = self._scale_start(self.fits[near].algorithm, near / count, belief)
            layers = range(self.target.layers)
            algorithm = fit_numbers(start, self.target, layers, belief, iterations=MAX_ITERATIONS)
            table = self.target.tabulate_costs(algorithm, max(belief))
            self.fits[count] = SharedFit(sum_costs(table, belief), belief, algorithm)
        return self.fits[count]

    def _scale_start(
        self, algorithm: Algorithm[Any, Any], share: float, belief: Sequence[int]
    ) -> Algorithm[Any, Any]:
        """Return the algorithm, or with one kind of its numbers scaled, whichever is nearer."""
        starts = [algorithm]
        for part in list_free_parameters(algorithm):
            scaled = share * getattr(algorithm, part.name)
            starts.append(replace(algorithm, **{part.name: scaled}))  # pyright: ignore[reportArgumentType]
        tables = self.target.tabulate_guesses(starts, max(belief))
        costs = [sum_costs(table, belief) for table in tables]
        return starts[costs.index(min(costs))]

    def find_best(self) -> SharedFit:
        """Search the number of steps of the best fit, by strides that grow or halve."""
        best = self.first
        stride = max(1, best // 2)
        while self.fits[best].cost > PERFECT_COST * self.target.layers:
            near = (best + stride, best - stride, 2 * best)
            around = [each for each in near if 1 <= each <= self.most]
            if len(self.fits) > MAX_SEARCHED:
                break
            nearest = min([best, *around], key=lambda each: self.fit_count(each).cost)
            if nearest != best:
                best, stride = nearest, 2 * stride
            elif stride == 1:
                break
            else:
                stride = (stride + 1) // 2
        return self.fits[best]

    def find_interval(self, highest_cost: float) -> tuple[int, int]:
        """Return the fewest and the most steps, around the first fit, of at most this cost."""
        edges = []
        for sign, edge in ((-1, 1), (1, self.most)):
            inside, outside, stride = self.first, None, 1
            while inside != edge and (outside is None or abs(outside - inside) > 1):
                middle = (inside + outside) // 2 if outside else inside + sign * stride
                middle = max(middle, edge) if sign < 0 else min(middle, edge)
                if self.fit_count(middle).cost <= highest_cost:
                    inside, stride = middle, 2 * stride
                else:
                    outside = middle
            edges.append(inside)
        return edges[0], edges[1]


def search_steps(fit: SharedFit, target: FitTarget, steps: int) -> SharedFit:
    """Fit with other numbers of steps too if a fit is near and not exact; return the best."""
    limit = SEARCHED_COST if target.layers > 1 else SEARCHED_SINGLE_COST
    near = EXACT_COST < fit.cost / target.layers < limit
    if not near or not max(fit.steps) or not list_free_parameters(fit.algorithm):
        return fit
    return StepSearch(fit, target, steps).find_best()


def fit_assignment(
    algorithm: Algorithm[Any, Any],
    belief: Sequence[int],
    fit_target: FitTarget,
    steps: int,
    iterations: int,
) -> SharedFit:
    """Fit values to an assumed step of some layers, then match every layer with its best step."""
    layers = sorted(
        {k * (fit_target.layers - 1) // (FITTED_LAYERS - 1) for k in range(FITTED_LAYERS)}
    )
    there = [belief[layer] for layer in layers]
    algorithm = fit_numbers(algorithm, fit_target, layers, there, iterations=iterations)
    table = fit_target.tabulate_costs(algorithm, steps)
    return SharedFit(sum_costs(table, match_steps(table)), match_steps(table), algorithm)


def assume_pace(layers: int, pace: int) -> list[int]:
    """Return the step of each layer if all take the same number of steps."""
    return [pace * (layer + 1) for layer in range(layers)]
