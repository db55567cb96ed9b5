"""The target of a fit, and the fit of a candidate's numbers for given steps of given layers.

The schedule of a candidate decides which steps:

    one for all   an iteration with the same values at every step; the step that best matches each
                  layer is found along with them (shared.py)
    per step      an iteration with its own values at every step; layer k is step k, and step k is
                  fitted to layer k after the steps before it; a single output is fitted by several
                  steps at once (stepwise.py)
    exact         a solution without steps, fitted to each layer by itself

All minimise Σ_layers E ‖m − c‖² / scale (see measures.py) by the Levenberg–Marquardt method.
screening.py decides how much work each candidate is worth.
"""

from __future__ import annotations

import math
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
    list_free_parameters,
    pack_parameters,
    predict_at_steps,
    predict_state,
    predict_steps,
    unpack_parameters,
)
from innerloop.identification.instances import copy_problem, copy_state
from innerloop.identification.marquardt import MAX_ITERATIONS, MIN_GAIN, minimise_squares
from innerloop.identification.measures import LayerPredictions, scale, squared_distance
from innerloop.identification.replicas import (
    FEW_NUMBERS,
    difference_together,
    fits_in_one_run,
    predict_together,
)

Schedule = Literal["one for all", "per step", "exact"]
FitResult = tuple[list[Algorithm[Any, Any]], list[int]]
"""For each layer, the algorithm and the step that match it."""

MIN_PROMPTS, EQUATIONS_PER_UNKNOWN = 64, 4
"""Values are fitted to at least this many prompts, and to at least this many predictions per free
number: prompts × layers for values shared by all steps."""
MANY_UNKNOWNS = 100
"""With more free numbers than this a fit is large: fewer starts are tried."""
JACOBIANS = 5
"""Tensors as large as the derivatives that a fit has in memory at once."""
HEAVY, MOST_PROMPTS = 1.0, 0.9
"""A prompt has less weight whose squared prediction is more than this many times what this share of
the prompts stays below."""
FITTED_LAYERS = 4
"""Values shared by all steps are fitted to this many layers, first and last included."""


@dataclass(frozen=True, eq=False)
class FitTarget:
    """The predictions to match after each layer, and the scale that errors are measured by.

    `roots` are the square roots of the weights of prompts at each layer; 1 for all if None.
    """

    problem: Any
    model: LayerPredictions
    scale: Float[Tensor, " layers"]
    roots: Float[Tensor, "layers batch 1"] | None = None

    @classmethod
    def weigh(cls, problem: Any, model: LayerPredictions, truth: Tensor | None) -> FitTarget:
        """Return the target with weights, so that a few prompts with large predictions do not
        decide a fit.

        If the steps of gradient descent exceed the stable limit of a few prompts, the predictions
        there are thousands of times as large as on other prompts.
        """
        size = model.square().sum(dim=-1, keepdim=True)
        limit = HEAVY * size.quantile(MOST_PROMPTS, dim=1, keepdim=True)
        roots = torch.where(size > limit, limit / size, 1.0).sqrt()
        roots = torch.where(limit > 0, roots, 1.0)
        if bool((roots == 1).all()):
            return cls(problem, model, scale(model, truth))
        # `scale` takes one truth for all layers, and here each has weights of its own.
        scales = [
            scale(torch.stack([layer, model[-1]]), None if truth is None else root * truth)[0]
            for layer, root in zip(roots * model, roots, strict=True)
        ]
        return cls(problem, model, torch.stack(scales), roots)

    @property
    def layers(self) -> int:
        return len(self.model)

    def take_first(self, prompts: int) -> FitTarget:
        """Restrict the target to its first prompts."""
        roots = None if self.roots is None else self.roots[:, :prompts]
        return FitTarget(self.problem[:prompts], self.model[:, :prompts], self.scale, roots)

    def take_layers(self, layers: int) -> FitTarget:
        """Restrict the target to its first layers."""
        roots = None if self.roots is None else self.roots[:layers]
        return FitTarget(self.problem, self.model[:layers], self.scale[:layers], roots)

    def take_layer(self, layer: int) -> FitTarget:
        """Restrict the target to one layer."""
        one = slice(layer, layer + 1)
        roots = None if self.roots is None else self.roots[one]
        return FitTarget(self.problem, self.model[one], self.scale[one], roots)

    def measure_costs(
        self, predictions: Float[Tensor, "k batch outputs"]
    ) -> Float[Tensor, "layers k"]:
        """Compute E ‖m − c‖² / scale for every layer and every row of predictions."""
        if self.roots is None:
            return squared_distance(self.model, predictions) / self.scale.unsqueeze(-1)
        rows = [
            squared_distance((root * layer)[None], root * predictions)[0]
            for layer, root in zip(self.model, self.roots, strict=True)
        ]
        return torch.stack(rows) / self.scale.unsqueeze(-1)

    def tabulate_costs(
        self, algorithm: Algorithm[Any, Any], steps: int
    ) -> Float[Tensor, "layers steps"]:
        """Compute E ‖m − c‖² / scale for every layer and step; ∞ where the algorithm refuses."""
        try:
            predictions = predict_steps(algorithm, self.problem, steps)
        except (InputError, LinAlgError):
            return self.model.new_full((self.layers, steps + 1), torch.inf)
        return self.measure_costs(predictions)

    def tabulate_guesses(
        self, guesses: Sequence[Algorithm[Any, Any]], steps: int
    ) -> list[Float[Tensor, "layers steps"]]:
        """Tabulate the costs of guesses that differ in free numbers only, together if possible."""
        if len(guesses) > 1 and fits_in_one_run(guesses[0], self.problem, len(guesses)):
            try:
                answers = predict_together(guesses, self.problem, range(steps + 1))
            except (InputError, LinAlgError):
                pass  # one of them is refused: which one is seen below
            else:
                return [self.measure_costs(each) for each in answers]
        return [self.tabulate_costs(guess, steps) for guess in guesses]

    def measure_state(self, algorithm: Algorithm[Any, Any], state: Any, layer: int) -> float:
        """Compute E ‖m − c‖² / scale of one layer for one state of an algorithm."""
        with torch.no_grad():
            prediction = predict_state(algorithm, copy_problem(self.problem), copy_state(state))
        return float(self.take_layer(layer).measure_costs(prediction[None]))

    def residual(
        self, predictions: Float[Tensor, "k batch outputs"], layers: Sequence[int]
    ) -> Float[Tensor, " m"]:
        """Return (c − m) / √(scale · batch) with the weights of prompts.

        The sum of its squares is the cost.
        """
        return ((predictions - self.model[list(layers)]) * self.weigh_residuals(layers)).flatten()

    def weigh_residuals(self, layers: Sequence[int]) -> Float[Tensor, "layers _ 1"]:
        """Return the factors of residuals at some layers."""
        factors = (self.scale[list(layers)] * self.model.shape[1]).rsqrt()[:, None, None]
        return factors if self.roots is None else factors * self.roots[list(layers)]


def count_prompts(guess: Algorithm[Any, Any], fit_target: FitTarget, schedule: Schedule) -> int:
    """Return the number of prompts that a candidate is fitted to.

    Every layer has information on values shared by all steps; values per step have one layer each.
    """
    unknowns = len(pack_parameters(guess))
    layers = fit_target.layers if schedule == "one for all" else 1
    return max(MIN_PROMPTS, EQUATIONS_PER_UNKNOWN * unknowns // layers)


def estimate_memory(guess: Algorithm[Any, Any], schedule: Schedule, fit_target: FitTarget) -> int:
    """Estimate the bytes of a fit: the derivative of every prediction by every number."""
    _, prompts, outputs = fit_target.model.shape
    count = min(prompts, count_prompts(guess, fit_target, schedule))
    layers = min(fit_target.layers, FITTED_LAYERS) if schedule == "one for all" else 1
    numbers = len(pack_parameters(guess))
    return JACOBIANS * fit_target.model.element_size() * count * layers * outputs * numbers


def group_guesses(guesses: Iterable[Algorithm[Any, Any]]) -> list[list[Algorithm[Any, Any]]]:
    """Group guesses that differ in free numbers only: one can be fitted into the other."""
    groups: dict[tuple[Any, ...], list[Algorithm[Any, Any]]] = {}
    for guess in guesses:
        names = {part.name for part in list_free_parameters(guess)}
        others = [f.name for f in fields(guess) if f.name not in names]  # pyright: ignore[reportArgumentType]
        key = tuple(_make_key(getattr(guess, name)) for name in others)
        groups.setdefault(key, []).append(guess)
    return list(groups.values())


def _make_key(value: Any) -> Any:
    """Return what tells values apart in a dictionary: the value, or which object it is."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def fit_exactly(
    guesses: Sequence[Algorithm[Any, Any]],
    fit_target: FitTarget,
    hopeless: float = math.inf,
    iterations: int = MAX_ITERATIONS,
) -> list[Algorithm[Any, Any]]:
    """Fit a solution without steps to each layer, from the guess that is nearest to it.

    A guess whose cost is above `hopeless` is not fitted.
    """
    few = fit_target.take_first(MIN_PROMPTS)
    # One after another: a solver that goes on until all instances are solved waits for the last.
    costs = torch.cat([few.tabulate_costs(guess, 0) for guess in guesses], dim=-1)
    fits = []
    for layer, index in enumerate(costs.argmin(dim=-1).tolist()):
        near = float(costs[layer, index]) <= hopeless
        fits.append(
            fit_numbers(guesses[index], fit_target, [layer], [0], iterations=iterations * near)
        )
    return fits


def fit_numbers(
    algorithm: Algorithm[Any, Any],
    fit_target: FitTarget,
    layers: Sequence[int],
    steps: Sequence[int],
    allowed: Tensor | None = None,
    before: tuple[int, Any] | None = None,
    shows: Tensor | None = None,
    iterations: int = MAX_ITERATIONS,
    gain: float = MIN_GAIN,
) -> Algorithm[Any, Any]:
    """Fit the allowed numbers so that `steps` match `layers`; `shows` gets which have effect."""
    theta = pack_parameters(algorithm)
    allowed = torch.ones_like(theta, dtype=torch.bool) if allowed is None else allowed
    if not iterations or not len(theta) or not bool(allowed.any()):
        return algorithm

    everything = bool(allowed.all())
    # Where `shows` asks, slopes are exact: by differences a number without effect may have one.
    by_differences = (
        before is None
        and shows is None
        and max(steps) > 0
        and len(theta) <= FEW_NUMBERS
        and fits_in_one_run(algorithm, fit_target.problem, 2 * len(theta) + 1)
    )

    def differentiate(trial: Algorithm[Any, Any]) -> tuple[Tensor, Tensor]:
        if by_differences:
            try:
                return difference_together(trial, fit_target.problem, steps)
            except InputError:
                pass  # a neighbour is refused, such as a penalty below 0
        return differentiate_predictions(trial, fit_target.problem, steps, before)

    def residual(numbers: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None] | None:
        try:
            trial = unpack_parameters(algorithm, theta.masked_scatter(allowed, numbers))
            if not slopes:
                with torch.no_grad():
                    predictions = _predict_at_steps(trial, fit_target.problem, steps, before)
                return fit_target.residual(predictions, layers), None
            predictions, by_theta = differentiate(trial)
        except (InputError, LinAlgError):
            return None
        chosen = by_theta if everything else by_theta[..., allowed]
        jacobian = (chosen * fit_target.weigh_residuals(layers).unsqueeze(-1)).flatten(0, 2)
        if shows is not None:
            shows[allowed] = jacobian.abs().amax(dim=0) > 0
        return fit_target.residual(predictions, layers), jacobian

    numbers = minimise_squares(residual, theta[allowed], iterations, gain)
    return unpack_parameters(algorithm, theta.masked_scatter(allowed, numbers))


def _predict_at_steps(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    steps: Sequence[int],
    before: tuple[int, Any] | None,
) -> Float[Tensor, "k batch outputs"]:
    """Predict after each of these steps."""
    if before is None:
        return predict_at_steps(algorithm, problem, steps)
    (k, state), problem = before, copy_problem(problem)
    state = copy_state(state)
    for step in range(k, max(steps)):
        state = algorithm.step(problem, state, step)
    return predict_state(algorithm, problem, state).unsqueeze(0)


def match_steps(table: Float[Tensor, "layers steps"]) -> list[int]:
    """Return the step that matches each layer best."""
    return table.argmin(dim=-1).tolist()


def sum_costs(table: Float[Tensor, "layers steps"], steps: Sequence[int]) -> float:
    """Sum the costs of matching each layer by its step; a layer counts at most 10."""
    return float(table[range(len(table)), list(steps)].clamp_max(10.0).sum())
