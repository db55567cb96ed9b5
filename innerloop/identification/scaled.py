"""Candidates times a gain: for models whose answers are those of an algorithm in another unit.

A gain is tried if no candidate is exact. The best gain of a guess after each step has a formula,
⟨m, c⟩/⟨c, c⟩, so that all algorithms are screened by one table; few are fitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.errors import InputError
from innerloop.identification.candidates import Candidate
from innerloop.identification.fits import Fit, count_numbers, measure_fit
from innerloop.identification.fitting import (
    FitTarget,
    count_prompts,
    fit_exactly,
    fit_numbers,
    sum_costs,
)
from innerloop.identification.hyper import pack_parameters, predict_steps
from innerloop.identification.rivals import MATCH_COST, is_exact
from innerloop.identification.shared import SEARCHED_COST, SharedFit, search_steps

MOST_NUMBERS, MOST_SCALED = 2, 3
"""Free numbers of an algorithm that is tried with a gain, at most, and how many are fitted."""
SCREENED_PROMPTS, SCREENED_STEPS = 32, 32
WORTH_A_GAIN = 0.1
"""A gain must leave less than this share of the cost of the same algorithm without one."""


@cache
def make_scaled(kind: type[Algorithm[Any, Any]]) -> type[Algorithm[Any, Any]]:
    """Make the class of an algorithm whose predictions are multiplied by a free `gain`."""

    def predict(self: Any, problem: Any, state: Any) -> Tensor:
        return self.gain.to(problem.x).unsqueeze(-1) * kind.predict(self, problem, state)

    gain = dataclasses.field(
        default_factory=lambda: torch.ones((), dtype=torch.float64),
        kw_only=True,
        metadata=hyperparameter(),
    )
    # A multiple of a special case is not a special case.
    names = {"predict": predict, "special_case_of": (), "__module__": kind.__module__}
    return dataclasses.make_dataclass(
        f"Scaled{kind.__name__}",
        [("gain", Tensor, gain)],
        bases=(kind,),
        namespace=names,
        frozen=True,
        eq=False,
    )


def fit_scaled(fits: Sequence[Fit], steps: int) -> list[Fit]:
    """Fit the algorithms that are near with a gain; return those that match only with it.

    Nothing is tried if a candidate with as few free numbers is exact already.
    """
    if any(is_exact(fit) and count_numbers(fit) <= MOST_NUMBERS + 1 for fit in fits):
        return []
    near = [(start, fit) for fit in fits if (start := _screen_gain(fit, steps)) is not None]
    near.sort(key=lambda each: (each[0][0], each[1].candidate.label))
    matching = []
    for start, fit in near[:MOST_SCALED]:
        scaled = _fit_gain(fit, start, steps)
        improved = float(scaled.costs.sum()) < WORTH_A_GAIN * float(fit.costs.sum())
        if improved and float(scaled.costs.max()) < MATCH_COST:
            matching.append(scaled)
    return matching


Start = tuple[float, list[int], Algorithm[Any, Any]]
"""A cost per layer, the step of each layer, and the algorithm with its gain."""


def _screen_gain(fit: Fit, steps: int) -> Start | None:
    """Return the guess that is nearest with a gain, and its cost; None where none is near."""
    candidate, target = fit.candidate, fit.fit_target.take_first(SCREENED_PROMPTS)
    guess = candidate.guesses[0]
    takes_gain = (
        target.model.shape[-1] == 1
        and candidate.schedule != "per step"
        and len(pack_parameters(guess)) <= MOST_NUMBERS
        and dataclasses.is_dataclass(guess)
        and candidate.name != "averaging"
    )
    if not takes_gain:
        return None
    count = 0 if candidate.schedule == "exact" else min(steps, SCREENED_STEPS)
    starts = [*candidate.guesses, *([fit.algorithms[0]] if _fits_class(fit) else [])]
    best: Start | None = None
    for start in starts:
        try:
            with torch.no_grad():
                predictions = predict_steps(start, target.problem, count)
        except (InputError, LinAlgError):
            continue
        costs, gains = _project(target, predictions)
        matched = costs.argmin(dim=-1).tolist()
        cost = sum_costs(costs, matched) / target.layers
        if cost < SEARCHED_COST and (best is None or cost < best[0]):
            values = {f.name: getattr(start, f.name) for f in dataclasses.fields(start) if f.init}  # pyright: ignore[reportArgumentType]
            gain = gains[-1, matched[-1]].double()
            best = (cost, matched, make_scaled(type(start))(**values, gain=gain))  # pyright: ignore[reportCallIssue]
    return best


def _fits_class(fit: Fit) -> bool:
    return type(fit.algorithms[0]) is fit.candidate.algorithm


def _project(target: FitTarget, predictions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cost of each layer and step with its best gain, and that gain."""
    roots = torch.ones_like(target.model) if target.roots is None else target.roots
    model = (roots * target.model).flatten(1)
    rows = torch.stack([(root * predictions).flatten(1) for root in roots])
    inner = torch.einsum("lp,lsp->ls", model, rows)
    power = rows.square().sum(dim=-1)
    gains = (inner / power.clamp_min(1e-300)).nan_to_num(0.0, 0.0, 0.0)
    missed = (model.unsqueeze(1) - gains.unsqueeze(-1) * rows).square().sum(dim=-1)
    costs = missed / len(target.model[0]) / target.scale.unsqueeze(-1)
    return costs.nan_to_num(torch.inf, torch.inf), gains


def _fit_gain(fit: Fit, start: Start, steps: int) -> Fit:
    """Fit an algorithm's numbers together with its gain, from a screened start.

    The fit uses some of the prompts. For an iteration, other numbers of steps up to `steps` are
    tried too.
    """
    _, matched, algorithm = start
    candidate = Candidate(fit.candidate.name, fit.candidate.schedule, [algorithm])
    few = fit.fit_target.take_first(count_prompts(algorithm, fit.fit_target, candidate.schedule))
    if candidate.schedule == "exact":
        return measure_fit(candidate, fit.fit_target, fit_exactly([algorithm], few), [])
    layers = range(few.layers)
    algorithm = fit_numbers(algorithm, few, layers, matched)
    cost = sum_costs(few.tabulate_costs(algorithm, max(matched)), matched)
    better = search_steps(SharedFit(cost, matched, algorithm), few, steps)
    return measure_fit(candidate, fit.fit_target, [better.algorithm] * few.layers, better.steps)
