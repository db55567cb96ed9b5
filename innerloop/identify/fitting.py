"""Fitting a candidate's free hyper-parameters to a model's predictions, layer by layer.

Three ways, by what the candidate is:
    one for all   an iteration with the same values at every step; which step a layer is best
                  matched by is found along with them
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
from innerloop.identify.hyper import (
    derivative,
    free,
    lengthened,
    owner,
    packed,
    ran,
    said,
    unpacked,
    window_of,
)
from innerloop.identify.instances import first
from innerloop.identify.marquardt import ITERATIONS, PERFECT, least_squares
from innerloop.identify.measures import Layers, squared_distance

Schedule = Literal["one for all", "per step", "exact"]
Fitted = tuple[list[Algorithm[Any, Any]], list[int]]
"""The algorithm and the step that match each layer."""

FEW, SPARE = 64, 6
"""Values that are the same at every step are fitted to at least so many prompts, and to so many
numbers for each of theirs."""
PACES = (1, 2)
"""Steps per layer to start from, besides the best match of every layer by itself."""
ALONE = 12
"""Where one layer is all that is seen, it may be any step: so many are started from."""
TRIED, FOLLOWED = 2, 3
"""Iterations of each belief, and how often the best one is followed and looked at again."""
MANY = 100
"""With more free numbers than that, only so many steps are looked at as the paces reach."""
PROMISING, HOPELESS = 1e-4, 0.5
"""Costs per layer below which no other belief is tried, and above which none is followed."""
SHOWN = 4
"""Values that are the same at every step are fitted to so many layers, first and last included."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """What is to be matched: predictions after each layer, and the scale to measure them by."""

    problem: Any
    model: Layers
    scale: Float[Tensor, " layers"]

    @property
    def layers(self) -> int:
        return len(self.model)

    def first(self, prompts: int) -> Wanted:
        """The same on fewer prompts."""
        return Wanted(first(self.problem, prompts), self.model[:, :prompts], self.scale)

    def table(self, algorithm: Algorithm[Any, Any], steps: int) -> Float[Tensor, "layers steps"]:
        """E ‖m − c‖² / scale for every layer and step; ∞ where the algorithm refuses."""
        try:
            predictions = ran(algorithm, self.problem, steps)
        except (InputError, LinAlgError):
            return self.model.new_full((self.layers, steps + 1), torch.inf)
        return squared_distance(self.model, predictions) / self.scale.unsqueeze(-1)

    def residual(
        self, predictions: Float[Tensor, "k batch outputs"], layers: Sequence[int]
    ) -> Float[Tensor, " m"]:
        """(c − m) / √(scale · batch), whose squares add up to the cost."""
        weight = (self.scale[list(layers)] * self.model.shape[1]).rsqrt()
        return ((predictions - self.model[list(layers)]) * weight[:, None, None]).flatten()


def fitted(
    guesses: Sequence[Algorithm[Any, Any]], schedule: Schedule, wanted: Wanted, steps: int
) -> Fitted:
    """The best fit from any of the guesses, and the step that matches each layer."""
    few = wanted.first(max(FEW, SPARE * len(packed(guesses[0])) // wanted.layers))
    if schedule == "exact":
        return _fitted_exactly(guesses, few), [0] * wanted.layers
    if schedule == "per step":
        fits = [_fitted_per_step(group, wanted) for group in _grouped(guesses)]
        matched = _paced(wanted, 1)
        best = min(fits, key=lambda fit: _cost(wanted.table(fit, wanted.layers), matched))
        return [best] * wanted.layers, matched
    if len(packed(guesses[0])) > MANY:
        steps = min(steps, max(PACES) * wanted.layers)
    best = _fitted_for_all(_grouped(guesses), few, steps)
    return [best] * wanted.layers, _matched(wanted.table(best, steps))


def _grouped(guesses: Iterable[Algorithm[Any, Any]]) -> list[list[Algorithm[Any, Any]]]:
    """Guesses that differ in free numbers alone, together: one can be fitted into the other."""
    groups: dict[tuple[Any, ...], list[Algorithm[Any, Any]]] = {}
    for guess in guesses:
        names = {part.name for part in free(guess)}
        others = [f.name for f in fields(guess) if f.name not in names]  # pyright: ignore[reportArgumentType]
        groups.setdefault(tuple(getattr(guess, name) for name in others), []).append(guess)
    return list(groups.values())


def _fitted_exactly(
    guesses: Sequence[Algorithm[Any, Any]], wanted: Wanted
) -> list[Algorithm[Any, Any]]:
    best = torch.cat([wanted.table(guess, 0) for guess in guesses], dim=-1).argmin(dim=-1)
    nearest = [guesses[index] for index in best.tolist()]
    return [_descended(each, wanted, [layer], [0]) for layer, each in enumerate(nearest)]


def _fitted_for_all(
    groups: Sequence[Sequence[Algorithm[Any, Any]]], wanted: Wanted, steps: int
) -> Algorithm[Any, Any]:
    """From several beliefs about which step a layer is: each is tried, the best one followed."""
    shown = sorted({k * (wanted.layers - 1) // (SHOWN - 1) for k in range(SHOWN)})

    def moved(
        algorithm: Algorithm[Any, Any], matched: Sequence[int], iterations: int
    ) -> tuple[float, list[int], Algorithm[Any, Any]]:
        there = [matched[layer] for layer in shown]
        algorithm = _descended(algorithm, wanted, shown, there, iterations=iterations)
        table = wanted.table(algorithm, steps)
        return _cost(table, _matched(table)), _matched(table), algorithm

    tables = [[wanted.table(guess, steps) for guess in group] for group in groups]
    tried = []
    paces = PACES if wanted.layers > 1 else range(1, ALONE + 1)
    for pace in (*paces, None):
        for group, own in zip(groups, tables, strict=True):
            nearest = min(own, key=lambda table: _cost(table, _matched(table)))
            belief = _matched(nearest) if pace is None else _paced(wanted, pace)
            if max(belief) <= steps:
                costs = [_cost(table, belief) for table in own]
                tried.append(moved(group[costs.index(min(costs))], belief, TRIED))
        best = min(tried, key=lambda each: each[0])[0]
        if wanted.layers > 1 and best < PROMISING * wanted.layers:
            break
    cost, matched, algorithm = min(tried, key=lambda each: each[0])
    for _ in range(FOLLOWED):
        if not PERFECT < cost / wanted.layers < HOPELESS:
            break
        before = matched
        cost, matched, algorithm = moved(algorithm, matched, ITERATIONS)
        if matched == before:
            break
    return algorithm


def _fitted_per_step(guesses: Sequence[Algorithm[Any, Any]], wanted: Wanted) -> Algorithm[Any, Any]:
    """Step after step; numbers that do not show at their own layer are fitted at a later one."""
    best = min(guesses, key=lambda guess: float(wanted.table(guess, 1)[0, 1]))
    algorithm = lengthened(best, wanted.layers)
    owners, theta = owner(algorithm), packed(algorithm)
    waiting = owners < 0
    states = [algorithm.init(wanted.problem)]
    for layer in range(wanted.layers):
        if layer:
            theta[owners == layer] = theta[owners == layer - 1]
        now = waiting | (owners == layer)
        start = int(owners[now].clamp_min(0).min()) if bool(now.any()) else layer
        inside = (owners < 0) | ((owners >= start) & (owners <= layer))
        window = window_of(unpacked(algorithm, theta), start, layer + 1)
        shows = torch.zeros_like(now[inside])
        before, after = (0, states[start]), [layer + 1 - start]
        window = _descended(window, wanted, [layer], after, now[inside], before, shows)
        theta[inside] = packed(window)
        waiting = now.clone()
        waiting[inside] &= ~shows
        states = states[: start + 1]
        for k in range(layer + 1 - start):
            states.append(window.step(wanted.problem, states[-1], k))
    return unpacked(algorithm, theta)


def _descended(
    algorithm: Algorithm[Any, Any],
    wanted: Wanted,
    layers: Sequence[int],
    steps: Sequence[int],
    allowed: Tensor | None = None,
    before: tuple[int, Any] | None = None,
    shows: Tensor | None = None,
    iterations: int = ITERATIONS,
) -> Algorithm[Any, Any]:
    """Fit the allowed numbers so that `steps` match `layers`; `shows` is told which ones matter."""
    theta = packed(algorithm)
    allowed = torch.ones_like(theta, dtype=torch.bool) if allowed is None else allowed
    if not len(theta) or not bool(allowed.any()):
        return algorithm

    def residual(numbers: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None] | None:
        try:
            trial = unpacked(algorithm, theta.masked_scatter(allowed, numbers))
            if not slopes:
                with torch.no_grad():
                    predictions = _at(trial, wanted.problem, steps, before)
                return wanted.residual(predictions, layers), None
            predictions, by_theta = derivative(trial, wanted.problem, steps, before)
        except (InputError, LinAlgError):
            return None
        weight = (wanted.scale[list(layers)] * wanted.model.shape[1]).rsqrt()
        jacobian = (by_theta[..., allowed] * weight[:, None, None, None]).flatten(0, 2)
        if shows is not None:
            shows[allowed] = jacobian.abs().amax(dim=0) > 0
        return wanted.residual(predictions, layers), jacobian

    numbers = least_squares(residual, theta[allowed], iterations)
    return unpacked(algorithm, theta.masked_scatter(allowed, numbers))


def _at(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    steps: Sequence[int],
    before: tuple[int, Any] | None,
) -> Float[Tensor, "k batch outputs"]:
    """Predictions after these steps."""
    if before is None:
        return ran(algorithm, problem, max(steps))[list(steps)]
    k, state = before
    for step in range(k, max(steps)):
        state = algorithm.step(problem, state, step)
    return said(algorithm, problem, state).unsqueeze(0)


def _paced(wanted: Wanted, pace: int) -> list[int]:
    return [pace * (layer + 1) for layer in range(wanted.layers)]


def _matched(table: Float[Tensor, "layers steps"]) -> list[int]:
    """The best match of every layer."""
    return table.argmin(dim=-1).tolist()


def _cost(table: Float[Tensor, "layers steps"], steps: Sequence[int]) -> float:
    """What it costs to match each layer by its step; a layer that nothing matches counts as 10."""
    return float(table[range(len(table)), list(steps)].clamp_max(10.0).sum())
