"""Candidates with a few free numbers and many outputs: trials, and their fit by differences.

A trial makes an algorithm from numbers. Where an answer has hundreds of entries and a candidate two
or three numbers (clustering, directions, odds), slopes by differences cost a run per number. The
numbers are fitted by the Levenberg–Marquardt method from the best of several starts, and the step
that matches each layer is found along with them. What jumps (greedy choices) has no slopes; there
the best start is refined by a search between its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.identification.candidates import Candidate
from innerloop.identification.fitting import FitTarget, Schedule
from innerloop.identification.hyper import (
    list_free_parameters,
    pack_parameters,
    predict_steps,
    unpack_parameters,
)
from innerloop.identification.marquardt import minimise_squares
from innerloop.identification.scores import Match

Numbers = tuple[float, ...]
SCREEN_PROMPTS, FIT_PROMPTS, BEST_STARTS, REFITS = 12, 48, 2, 3
"""Prompts of the first look and of the fit, starts that are fitted, and refits after new steps."""
FIRST_STEPS = 6
"""Numbers are estimated as if a layer were up to this many steps from the start."""
DIFFERENCE = 1e-6
"""Relative size of the differences that slopes are taken by."""
NARROWINGS, SHRINK = 8, 0.5
"""Rounds of the search without slopes, and how much of a number's range is left after each."""
GOOD_COST, HOPELESS_COST, MAX_COST, MIN_GAIN = 1e-8, 0.7, 10.0, 0.02
"""Costs per layer: of a perfect fit, of one that is not worth a fit, of what diverged; and the
share of the cost that a refit must gain."""
SAME_COST = 1e-12
"""Steps whose costs differ by less are equally good."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate by its numbers: how it is made from them, and where a fit starts."""

    name: str
    make: Callable[[Numbers], Algorithm[Any, Any]]
    starts: Sequence[Numbers]
    numbers: tuple[str, ...] = ()
    contained_in: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def from_guesses(cls, name: str, guesses: Sequence[Algorithm[Any, Any]]) -> list[Trial]:
        """Return a trial for each group of guesses that differ in free numbers only."""
        groups: dict[Any, list[Algorithm[Any, Any]]] = {}
        for guess in guesses:
            free = {part.name for part in list_free_parameters(guess)}
            rest = {k: v for k, v in vars(guess).items() if k not in free}
            key = tuple((k, str(v)) for k, v in rest.items())
            groups.setdefault(key, []).append(guess)
        return [cls._from_group(name, group) for group in groups.values()]

    @classmethod
    def _from_group(cls, name: str, group: Sequence[Algorithm[Any, Any]]) -> Trial:
        first = group[0]

        def make(numbers: Numbers) -> Algorithm[Any, Any]:
            theta = torch.tensor(numbers, dtype=torch.float64)
            return unpack_parameters(first, theta) if len(theta) else first

        parts = [
            f"{part.name}[{k}]" if getattr(first, part.name).numel() > 1 else part.name
            for part in list_free_parameters(first)
            for k in range(getattr(first, part.name).numel())
        ]
        starts = [tuple(pack_parameters(guess).tolist()) for guess in group]
        return cls(name, make, starts, tuple(parts))


@dataclass(frozen=True, eq=False)
class TrialCandidate(Candidate):
    """A candidate that is fitted by its trials."""

    trials: Sequence[Trial] = ()

    def view(self, problem: Any) -> Any:
        return problem

    def contains(self, other: Candidate) -> bool:
        inside = getattr(other, "trials", ())
        return any(self.name in trial.contained_in for trial in inside)


def make_trial_candidate(name: str, trials: Sequence[Trial]) -> TrialCandidate:
    """Return the candidate of some trials."""
    first = trials[0].make(trials[0].starts[0])
    schedule: Schedule = "one for all" if first.has_steps else "exact"
    return TrialCandidate(name, schedule, [first], trials)


def fit_trials(candidate: TrialCandidate, fit_target: FitTarget, scoring: Any, steps: int) -> Match:
    """Fit the candidate's best trial on one set of prompts; predict with it on another.

    A candidate without steps is fitted to each layer separately.
    """
    if candidate.schedule == "exact":
        return _fit_exactly(candidate, fit_target, scoring)
    some, (order, _) = fit_target.take_first(FIT_PROMPTS), _screen(candidate, fit_target, steps)
    starts = [*order[:BEST_STARTS]]
    for trial in candidate.trials:
        starts += _estimate_starts(trial, fit_target, steps)
    fits = []
    for trial, start in starts:
        numbers = _fit_numbers(trial, start, some, steps)
        fits.append((_cost(_tabulate(trial, numbers, some, steps)), trial, numbers))
        if fits[-1][0] < GOOD_COST * fit_target.layers:
            break
    _, trial, numbers = min(fits, key=lambda fit: fit[0])
    matched = _match_steps(_tabulate(trial, numbers, some, steps))
    algorithm = trial.make(numbers)
    predictions = _predict(algorithm, scoring, max(matched))[matched]
    values = dict(zip(trial.numbers, numbers, strict=True))
    algorithms = [algorithm] * fit_target.layers
    return Match(candidate, algorithms, matched, len(numbers), predictions, values)


@runtime_checkable
class Estimating(Protocol):
    """An algorithm whose numbers can be estimated from its answers, without a search."""

    def estimate(self, problem: Any, answers: Tensor, step: int) -> Algorithm[Any, Any]:
        """Return the algorithm that gives these answers, as vectors, after this number of steps."""
        ...


def _estimate_starts(
    trial: Trial, fit_target: FitTarget, steps: int
) -> list[tuple[Trial, Numbers]]:
    """Estimate numbers from each layer, as if it were few steps from the start.

    Many numbers have many local optima, and a search among random starts misses the best.
    """
    algorithm = trial.make(trial.starts[0])
    if not isinstance(algorithm, Estimating):
        return []
    found = []
    for answers in fit_target.model:
        for step in range(1, min(FIRST_STEPS, steps) + 1):
            estimate = algorithm.estimate(fit_target.problem, answers, step)
            found.append((trial, tuple(pack_parameters(estimate).tolist())))
    found.sort(key=lambda each: _cost(_tabulate(each[0], each[1], fit_target, steps)))
    return found[:BEST_STARTS]


def _fit_exactly(candidate: TrialCandidate, fit_target: FitTarget, scoring: Any) -> Match:
    """Fit a candidate without steps to each layer that it is anywhere near to."""
    some, (order, costs) = fit_target.take_first(FIT_PROMPTS), _screen(candidate, fit_target, 0)
    fits, last = [], None
    for layer in reversed(range(fit_target.layers)):
        one = some.take_layer(layer)
        tries = [order[int(costs[:, layer].argmin())], *([last] if last else [])]
        trial, start = min(tries, key=lambda each: _cost(_tabulate(each[0], each[1], one, 0)))
        if _cost(_tabulate(trial, start, one, 0)) < HOPELESS_COST:
            start = _fit_numbers(trial, start, one, 0)
        last = (trial, start)
        fits.append(last)
    fits.reverse()
    algorithms = [trial.make(numbers) for trial, numbers in fits]
    rows = torch.stack([_predict(algorithm, scoring, 0)[0] for algorithm in algorithms])
    names = max((trial.numbers for trial, _ in fits), key=len)
    found = [dict(zip(trial.numbers, numbers, strict=True)) for trial, numbers in fits]
    values = {name: [each.get(name, 0.0) for each in found] for name in names}
    count = sum(len(numbers) for _, numbers in fits)
    return Match(candidate, algorithms, [0] * fit_target.layers, count, rows, values)


def _screen(
    candidate: TrialCandidate, fit_target: FitTarget, steps: int
) -> tuple[list[tuple[Trial, Numbers]], Float[Tensor, "starts layers"]]:
    """Order all starts by their cost on few prompts; return them with their costs per layer."""
    few = fit_target.take_first(SCREEN_PROMPTS)
    starts = [(trial, start) for trial in candidate.trials for start in trial.starts]
    tables = [_tabulate(trial, start, few, steps) for trial, start in starts]
    costs = torch.stack([table.amin(dim=-1).clamp_max(MAX_COST) for table in tables])
    order = costs.sum(dim=-1).argsort(stable=True)
    return [starts[k] for k in order.tolist()], costs[order]


def _fit_numbers(trial: Trial, start: Numbers, fit_target: FitTarget, steps: int) -> Numbers:
    """Fit numbers from a start, along with the steps that match the layers."""
    table = _tabulate(trial, start, fit_target, steps)
    best, cost = start, _cost(table)
    if not len(start) or cost < GOOD_COST * fit_target.layers:
        return start
    for _ in range(REFITS):
        matched = _match_steps(table)
        moved = tuple(_descend(trial, best, fit_target, matched))
        table = _tabulate(trial, moved, fit_target, steps)
        if not _cost(table) < cost:
            break
        gain, best, cost = cost - _cost(table), moved, _cost(table)
        if cost < GOOD_COST * fit_target.layers or gain < MIN_GAIN * cost:
            break
    jumps = best == start and cost < HOPELESS_COST * fit_target.layers
    return _search(trial, best, fit_target, steps) if jumps else best


def _descend(
    trial: Trial, start: Numbers, fit_target: FitTarget, matched: Sequence[int]
) -> list[float]:
    layers = list(range(fit_target.layers))

    def residual(numbers: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None] | None:
        here = _residual(trial, numbers, fit_target, matched, layers)
        if here is None or not slopes:
            return None if here is None else (here, None)
        columns = []
        for k, value in enumerate(numbers.tolist()):
            step = DIFFERENCE * max(abs(value), 1e-3)
            ahead, behind = numbers.clone(), numbers.clone()
            ahead[k] += step
            behind[k] -= step
            ends = [_residual(trial, each, fit_target, matched, layers) for each in (ahead, behind)]
            if ends[0] is None or ends[1] is None:
                return None
            columns.append((ends[0] - ends[1]) / (2 * step))
        return here, torch.stack(columns, dim=-1)

    begin = torch.tensor(start, dtype=torch.float64)
    return minimise_squares(residual, begin).tolist()


def _residual(
    trial: Trial, numbers: Tensor, fit_target: FitTarget, matched: Sequence[int], layers: list[int]
) -> Tensor | None:
    try:
        algorithm = trial.make(tuple(numbers.tolist()))
        predictions = _predict(algorithm, fit_target.problem, max(matched))
    except (InputError, LinAlgError):
        return None
    return fit_target.residual(predictions[list(matched)], layers)


def _search(trial: Trial, start: Numbers, fit_target: FitTarget, steps: int) -> Numbers:
    """Search number by number, in an interval that shrinks around the best one found."""
    best, cost = start, _cost(_tabulate(trial, start, fit_target, steps))
    reach = 1.0
    for _ in range(NARROWINGS):
        for k, value in enumerate(best):
            for factor in (2.0**-reach, 2.0**reach):
                tried = (*best[:k], value * factor, *best[k + 1 :])
                found = _cost(_tabulate(trial, tried, fit_target, steps))
                if found < cost:
                    best, cost = tried, found
        if cost == 0:
            break
        reach *= SHRINK
    return best


def _tabulate(
    trial: Trial, numbers: Numbers, fit_target: FitTarget, steps: int
) -> Float[Tensor, "layers steps"]:
    """Compute E ‖m − c‖² / scale for every layer and step; ∞ where numbers are refused."""
    try:
        predictions = _predict(trial.make(numbers), fit_target.problem, steps)
    except (InputError, LinAlgError):
        return fit_target.model.new_full((fit_target.layers, 1), torch.inf)
    return fit_target.measure_costs(predictions)


def _predict(algorithm: Algorithm[Any, Any], problem: Any, steps: int) -> Tensor:
    with torch.no_grad():
        return predict_steps(algorithm, problem, cap_steps(algorithm, problem, steps))


def cap_steps(algorithm: Algorithm[Any, Any], problem: Any, steps: int) -> int:
    """Return `steps`, or the number of steps that the algorithm has, if that is smaller."""
    most = algorithm.count_steps(problem)
    return steps if most is None else min(steps, most)


def _match_steps(table: Float[Tensor, "layers steps"]) -> list[int]:
    """Return the best step of each layer: its own number, where that is as good as any."""
    matched = []
    for layer, row in enumerate(table.tolist(), 1):
        best = min(row)
        own = layer < len(row) and row[layer] <= best + SAME_COST
        matched.append(layer if own else row.index(best))
    return matched


def _cost(table: Float[Tensor, "layers steps"]) -> float:
    """Sum the cost of each layer's best step; a layer counts at most `MAX_COST`."""
    return float(table.amin(dim=-1).clamp_max(MAX_COST).sum())
