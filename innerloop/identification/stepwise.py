"""Fits of an iteration with its own values at every step.

Where the model is seen after every layer, step k is fitted to layer k after the steps before it.
Where only one output is seen, 1, 2, … steps are fitted to it at once: from equal values, spread
like the step sizes of a Chebyshev iteration (equal ones would stay equal), and from the fit with
one step less. The fewest steps that fit as well as any are kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from innerloop.algorithms.base import Algorithm
from innerloop.identification.fitting import (
    MANY_UNKNOWNS,
    FitTarget,
    fit_numbers,
    group_guesses,
)
from innerloop.identification.hyper import (
    find_owning_steps,
    list_free_parameters,
    pack_parameters,
    repeat_per_step,
    slice_steps,
    unpack_parameters,
)
from innerloop.identification.instances import copy_problem, copy_state

MAX_WAIT = 2
"""A step's numbers without effect on their own layer are fitted at one of this many later ones."""
MAX_OUTPUT_STEPS, MANY_OUTPUT_NUMBERS, PROMISING_COST = 6, 12, 1e-4
"""Steps that a single output is fitted by at most; more, up to the second count of free numbers,
where the first ones reach this cost."""
OUTPUT_ITERATIONS, OUTPUT_GAIN = 30, 3e-3
"""Iterations of each such fit, and the share by which the cost must fall: steps of similar size are
told apart slowly."""
SPREADS = (0.4, 0.85)
"""Half the spread of values over steps that a fit to a single output starts from."""
OUTPUT_COST, WORTH_A_STEP = 1e-10, 0.5
"""A cost this small needs no further step; a further step must leave less than this share."""
MIN_OUTPUT_STEPS, RIVALLED_COST = 2, 1e-2
"""Steps after which a fit ends whose cost is above this where another candidate's is nearly 0."""


def never(layer: int, cost: float) -> bool:
    """Return False: a rule that never ends a fit early, whatever the cost of a layer."""
    return False


def fit_stepwise(
    guesses: Sequence[Algorithm[Any, Any]],
    fit_target: FitTarget,
    give_up: Callable[[int, float], bool] = never,
) -> Algorithm[Any, Any]:
    """Fit one step after another.

    Numbers without effect on their own layer are fitted at a later one.

    If `give_up(layer, cost)` returns True, the fit ends, and the remaining steps keep the last
    values.
    """
    costs = [float(table[0, 1]) for table in fit_target.tabulate_guesses(guesses, 1)]
    best = guesses[costs.index(min(costs))]
    algorithm = repeat_per_step(best, fit_target.layers)
    owners, theta = find_owning_steps(algorithm), pack_parameters(algorithm)
    waiting = owners < 0
    states = [algorithm.init(copy_problem(fit_target.problem))]
    for layer in range(fit_target.layers):
        if layer:
            theta[owners == layer] = theta[owners == layer - 1]
        now = (waiting & ((owners < 0) | (owners >= layer - MAX_WAIT))) | (owners == layer)
        start = int(owners[now].clamp_min(0).min()) if bool(now.any()) else layer
        inside = (owners < 0) | ((owners >= start) & (owners <= layer))
        window = slice_steps(unpack_parameters(algorithm, theta), start, layer + 1)
        shows = torch.zeros_like(now[inside])
        before, after = (0, states[start]), [layer + 1 - start]
        window = fit_numbers(window, fit_target, [layer], after, now[inside], before, shows)
        theta[inside] = pack_parameters(window)
        waiting = now.clone()
        waiting[inside] &= ~shows
        states = states[: start + 1]
        problem = copy_problem(fit_target.problem)
        for k in range(layer + 1 - start):
            states.append(window.step(problem, copy_state(states[-1]), k))
        if give_up(layer, fit_target.measure_state(window, states[-1], layer)):
            for later in range(layer + 1, fit_target.layers):
                theta[owners == later] = theta[owners == layer]
            break
    return unpack_parameters(algorithm, theta)


def fit_output(
    guesses: Sequence[Algorithm[Any, Any]], fit_target: FitTarget, least: float = math.inf
) -> tuple[Algorithm[Any, Any], int]:
    """Fit several steps with separate values to a single output; return the number of steps too.

    If another candidate reaches a cost of `least` that is nearly 0, the fit ends after
    `MIN_OUTPUT_STEPS` steps unless its cost comes near.
    """
    enough = math.inf if least > OUTPUT_COST else RIVALLED_COST
    best: tuple[float, int, Algorithm[Any, Any]] | None = None
    for group in group_guesses(guesses):
        last: Algorithm[Any, Any] | None = None
        for steps in itertools.count(1):
            numbers = len(pack_parameters(repeat_per_step(group[0], steps)))
            most = MANY_UNKNOWNS if steps <= MAX_OUTPUT_STEPS else MANY_OUTPUT_NUMBERS
            if steps > 1 and numbers > most:
                break
            starts = _list_starts(group, fit_target, steps, last)
            fits = [
                fit_numbers(
                    start, fit_target, [0], [steps], iterations=OUTPUT_ITERATIONS, gain=OUTPUT_GAIN
                )
                for start in starts
            ]
            costs = [float(fit_target.tabulate_costs(fit, steps)[0, steps]) for fit in fits]
            last = fits[costs.index(min(costs))]
            if best is None or min(costs) < WORTH_A_STEP * best[0]:
                best = (min(costs), steps, last)
            if min(costs) < OUTPUT_COST or steps > best[1] + 1:
                break
            if steps >= MAX_OUTPUT_STEPS and min(costs) > PROMISING_COST:
                break
            if steps >= MIN_OUTPUT_STEPS and best[0] > enough:
                break
    assert best is not None
    return best[2], best[1]


def _list_starts(
    group: Sequence[Algorithm[Any, Any]],
    fit_target: FitTarget,
    steps: int,
    last: Algorithm[Any, Any] | None,
) -> list[Algorithm[Any, Any]]:
    costs = [float(table[0, steps]) for table in fit_target.tabulate_guesses(group, steps)]
    nearest = group[costs.index(min(costs))]
    if steps == 1:
        return [repeat_per_step(nearest, 1)]
    equal = fit_numbers(nearest, fit_target, [0], [steps])
    starts = [_spread_values(repeat_per_step(equal, steps), spread) for spread in SPREADS]
    return starts if last is None else [*starts, _append_step(last)]


def _spread_values(algorithm: Algorithm[Any, Any], spread: float) -> Algorithm[Any, Any]:
    """Divide the values of step k by 1 + spread · cos((2k + 1)π/2K), Chebyshev's points."""
    values = {}
    for part in list_free_parameters(algorithm):
        value = getattr(algorithm, part.name)
        if part.per_step:
            points = (2 * torch.arange(len(value)).to(value) + 1) * math.pi / (2 * len(value))
            shares = 1 + spread * points.cos()
            values[part.name] = value / shares.reshape(-1, *[1] * (value.ndim - 1))
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def _append_step(algorithm: Algorithm[Any, Any]) -> Algorithm[Any, Any]:
    """Add a step whose values are a tenth of the mean of the others."""
    values = {}
    for part in list_free_parameters(algorithm):
        value = getattr(algorithm, part.name)
        if part.per_step:
            values[part.name] = torch.cat([value, 0.1 * value.mean(dim=0, keepdim=True)])
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]
