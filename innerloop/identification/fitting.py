"""Fitting of a candidate's free hyper-parameters to a model's predictions, layer by layer.

The schedule of a candidate decides how:
    one for all   an iteration with the same values at every step; the step that best matches each
                  layer is found along with them
    per step      an iteration with its own values at every step; layer k is step k, and step k is
                  fitted to layer k after the steps before it
    exact         a solution without steps, fitted to each layer by itself
All minimise Σ_layers E ‖m − c‖² / scale (see measures.py) by the Levenberg–Marquardt method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.identification.hyper import (
    differentiate_predictions,
    find_owning_steps,
    list_free_parameters,
    pack_parameters,
    predict_state,
    predict_steps,
    repeat_per_step,
    slice_steps,
    unpack_parameters,
)
from innerloop.identification.instances import copy_problem, copy_state
from innerloop.identification.marquardt import MAX_ITERATIONS, PERFECT_COST, minimise_squares
from innerloop.identification.measures import LayerPredictions, squared_distance

Schedule = Literal["one for all", "per step", "exact"]
FitResult = tuple[list[Algorithm[Any, Any]], list[int]]
"""For each layer, the algorithm and the step that match it."""

MIN_PROMPTS, EQUATIONS_PER_UNKNOWN = 64, 6
"""Values shared by all steps are fitted to at least this many prompts, and to at least this many
predictions (prompts × layers) per free number."""
PACES = (1, 2)
"""Steps per layer that fits start from, besides each layer's own best match."""
SINGLE_LAYER_STARTS = 12
"""For a model with a single layer, which may be any step: fits start from steps 1 to this."""
TRIAL_ITERATIONS, MAX_REFITS = 2, 3
"""Iterations that each assignment of steps to layers is tried for, and refits of the best one."""
MANY_UNKNOWNS = 100
"""With more free numbers than this, only the steps that `PACES` reach are considered."""
PROMISING_COST, HOPELESS_COST = 1e-4, 0.5
"""Costs per layer below which no other assignment is tried, and above which none is refitted."""
JACOBIANS = 5
"""Tensors as large as the derivatives that a fit has in memory at once."""
FITTED_LAYERS = 4
"""Values shared by all steps are fitted to this many layers, first and last included."""


@dataclass(frozen=True, eq=False)
class FitTarget:
    """The predictions to match after each layer, and the scale that errors are measured by."""

    problem: Any
    model: LayerPredictions
    scale: Float[Tensor, " layers"]

    @property
    def layers(self) -> int:
        return len(self.model)

    def take_first(self, prompts: int) -> FitTarget:
        """Restrict the target to its first prompts."""
        return FitTarget(self.problem[:prompts], self.model[:, :prompts], self.scale)

    def tabulate_costs(
        self, algorithm: Algorithm[Any, Any], steps: int
    ) -> Float[Tensor, "layers steps"]:
        """Compute E ‖m − c‖² / scale for every layer and step; ∞ where the algorithm refuses."""
        try:
            predictions = predict_steps(algorithm, self.problem, steps)
        except (InputError, LinAlgError):
            return self.model.new_full((self.layers, steps + 1), torch.inf)
        return squared_distance(self.model, predictions) / self.scale.unsqueeze(-1)

    def residual(
        self, predictions: Float[Tensor, "k batch outputs"], layers: Sequence[int]
    ) -> Float[Tensor, " m"]:
        """(c − m) / √(scale · batch), whose squares add up to the cost."""
        weight = (self.scale[list(layers)] * self.model.shape[1]).rsqrt()
        return ((predictions - self.model[list(layers)]) * weight[:, None, None]).flatten()


def fit_candidate(
    guesses: Sequence[Algorithm[Any, Any]], schedule: Schedule, wanted: FitTarget, steps: int
) -> FitResult:
    """Fit from every guess; return the best fit and the step that matches each layer."""
    few = wanted.take_first(_count_prompts(guesses[0], wanted))
    if schedule == "exact":
        return _fit_exactly(guesses, few), [0] * wanted.layers
    if schedule == "per step":
        fits = [_fit_per_step(group, wanted) for group in _group_guesses(guesses)]
        matched = _assume_pace(wanted, 1)
        best = min(fits, key=lambda fit: _cost(wanted.tabulate_costs(fit, wanted.layers), matched))
        return [best] * wanted.layers, matched
    if len(pack_parameters(guesses[0])) > MANY_UNKNOWNS:
        steps = min(steps, max(PACES) * wanted.layers)
    best = _fit_for_all_steps(_group_guesses(guesses), few, steps)
    return [best] * wanted.layers, _match_steps(wanted.tabulate_costs(best, steps))


def _count_prompts(guess: Algorithm[Any, Any], wanted: FitTarget) -> int:
    """Return how many prompts values shared by all steps are fitted to."""
    unknowns = len(pack_parameters(guess))
    return max(MIN_PROMPTS, EQUATIONS_PER_UNKNOWN * unknowns // wanted.layers)


def estimate_memory(guess: Algorithm[Any, Any], schedule: Schedule, wanted: FitTarget) -> int:
    """Estimate the bytes of a fit: the derivative of every prediction by every number."""
    _, prompts, outputs = wanted.model.shape
    count = prompts if schedule == "per step" else min(prompts, _count_prompts(guess, wanted))
    layers = min(wanted.layers, FITTED_LAYERS) if schedule == "one for all" else 1
    numbers = len(pack_parameters(guess))
    return JACOBIANS * wanted.model.element_size() * count * layers * outputs * numbers


def _group_guesses(guesses: Iterable[Algorithm[Any, Any]]) -> list[list[Algorithm[Any, Any]]]:
    """Group guesses that differ in free numbers only: one can be fitted into the other."""
    groups: dict[tuple[Any, ...], list[Algorithm[Any, Any]]] = {}
    for guess in guesses:
        names = {part.name for part in list_free_parameters(guess)}
        others = [f.name for f in fields(guess) if f.name not in names]  # pyright: ignore[reportArgumentType]
        groups.setdefault(tuple(getattr(guess, name) for name in others), []).append(guess)
    return list(groups.values())


def _fit_exactly(
    guesses: Sequence[Algorithm[Any, Any]], wanted: FitTarget
) -> list[Algorithm[Any, Any]]:
    best = torch.cat([wanted.tabulate_costs(guess, 0) for guess in guesses], dim=-1).argmin(dim=-1)
    nearest = [guesses[index] for index in best.tolist()]
    return [_fit_numbers(each, wanted, [layer], [0]) for layer, each in enumerate(nearest)]


def _fit_for_all_steps(
    groups: Sequence[Sequence[Algorithm[Any, Any]]], wanted: FitTarget, steps: int
) -> Algorithm[Any, Any]:
    """Fit from several assignments of steps to layers: each is tried, the best one refitted."""
    shown = sorted({k * (wanted.layers - 1) // (FITTED_LAYERS - 1) for k in range(FITTED_LAYERS)})

    def moved(
        algorithm: Algorithm[Any, Any], matched: Sequence[int], iterations: int
    ) -> tuple[float, list[int], Algorithm[Any, Any]]:
        there = [matched[layer] for layer in shown]
        algorithm = _fit_numbers(algorithm, wanted, shown, there, iterations=iterations)
        table = wanted.tabulate_costs(algorithm, steps)
        return _cost(table, _match_steps(table)), _match_steps(table), algorithm

    tables = [[wanted.tabulate_costs(guess, steps) for guess in group] for group in groups]
    tried = []
    paces = PACES if wanted.layers > 1 else range(1, SINGLE_LAYER_STARTS + 1)
    for pace in (*paces, None):
        for group, own in zip(groups, tables, strict=True):
            nearest = min(own, key=lambda table: _cost(table, _match_steps(table)))
            belief = _match_steps(nearest) if pace is None else _assume_pace(wanted, pace)
            if max(belief) <= steps:
                costs = [_cost(table, belief) for table in own]
                tried.append(moved(group[costs.index(min(costs))], belief, TRIAL_ITERATIONS))
        best = min(tried, key=lambda each: each[0])[0]
        if wanted.layers > 1 and best < PROMISING_COST * wanted.layers:
            break
    cost, matched, algorithm = min(tried, key=lambda each: each[0])
    for _ in range(MAX_REFITS):
        if not PERFECT_COST < cost / wanted.layers < HOPELESS_COST:
            break
        before = matched
        cost, matched, algorithm = moved(algorithm, matched, MAX_ITERATIONS)
        if matched == before:
            break
    return algorithm


def _fit_per_step(guesses: Sequence[Algorithm[Any, Any]], wanted: FitTarget) -> Algorithm[Any, Any]:
    """Fit step after step; numbers without effect on their own layer are fitted at a later one."""
    best = min(guesses, key=lambda guess: float(wanted.tabulate_costs(guess, 1)[0, 1]))
    algorithm = repeat_per_step(best, wanted.layers)
    owners, theta = find_owning_steps(algorithm), pack_parameters(algorithm)
    waiting = owners < 0
    states = [algorithm.init(copy_problem(wanted.problem))]
    for layer in range(wanted.layers):
        if layer:
            theta[owners == layer] = theta[owners == layer - 1]
        now = waiting | (owners == layer)
        start = int(owners[now].clamp_min(0).min()) if bool(now.any()) else layer
        inside = (owners < 0) | ((owners >= start) & (owners <= layer))
        window = slice_steps(unpack_parameters(algorithm, theta), start, layer + 1)
        shows = torch.zeros_like(now[inside])
        before, after = (0, states[start]), [layer + 1 - start]
        window = _fit_numbers(window, wanted, [layer], after, now[inside], before, shows)
        theta[inside] = pack_parameters(window)
        waiting = now.clone()
        waiting[inside] &= ~shows
        states = states[: start + 1]
        problem = copy_problem(wanted.problem)
        for k in range(layer + 1 - start):
            states.append(window.step(problem, copy_state(states[-1]), k))
    return unpack_parameters(algorithm, theta)


def _fit_numbers(
    algorithm: Algorithm[Any, Any],
    wanted: FitTarget,
    layers: Sequence[int],
    steps: Sequence[int],
    allowed: Tensor | None = None,
    before: tuple[int, Any] | None = None,
    shows: Tensor | None = None,
    iterations: int = MAX_ITERATIONS,
) -> Algorithm[Any, Any]:
    """Fit the allowed numbers so that `steps` match `layers`; `shows` gets which have effect."""
    theta = pack_parameters(algorithm)
    allowed = torch.ones_like(theta, dtype=torch.bool) if allowed is None else allowed
    if not len(theta) or not bool(allowed.any()):
        return algorithm

    def residual(numbers: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None] | None:
        try:
            trial = unpack_parameters(algorithm, theta.masked_scatter(allowed, numbers))
            if not slopes:
                with torch.no_grad():
                    predictions = _predict_at_steps(trial, wanted.problem, steps, before)
                return wanted.residual(predictions, layers), None
            predictions, by_theta = differentiate_predictions(trial, wanted.problem, steps, before)
        except (InputError, LinAlgError):
            return None
        weight = (wanted.scale[list(layers)] * wanted.model.shape[1]).rsqrt()
        jacobian = (by_theta[..., allowed] * weight[:, None, None, None]).flatten(0, 2)
        if shows is not None:
            shows[allowed] = jacobian.abs().amax(dim=0) > 0
        return wanted.residual(predictions, layers), jacobian

    numbers = minimise_squares(residual, theta[allowed], iterations)
    return unpack_parameters(algorithm, theta.masked_scatter(allowed, numbers))


def _predict_at_steps(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    steps: Sequence[int],
    before: tuple[int, Any] | None,
) -> Float[Tensor, "k batch outputs"]:
    """Predict after each of these steps."""
    if before is None:
        return predict_steps(algorithm, problem, max(steps))[list(steps)]
    (k, state), problem = before, copy_problem(problem)
    state = copy_state(state)
    for step in range(k, max(steps)):
        state = algorithm.step(problem, state, step)
    return predict_state(algorithm, problem, state).unsqueeze(0)


def _assume_pace(wanted: FitTarget, pace: int) -> list[int]:
    return [pace * (layer + 1) for layer in range(wanted.layers)]


def _match_steps(table: Float[Tensor, "layers steps"]) -> list[int]:
    """Return the step that matches each layer best."""
    return table.argmin(dim=-1).tolist()


def _cost(table: Float[Tensor, "layers steps"], steps: Sequence[int]) -> float:
    """Sum the costs of matching each layer by its step; a layer counts at most 10."""
    return float(table[range(len(table)), list(steps)].clamp_max(10.0).sum())
