"""An algorithm's free hyper-parameters as one vector θ, and the derivative of predictions by θ.

Free are the fields that the algorithm declares with `hyperparameter()`. Every instance gets its own
copy of them, so that one backward pass has the derivative of every instance by every number:
∂ prediction_i / ∂ θ for all i at once, whatever the length of θ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.instances import copy_problem, copy_state, select_queries

Predictions = Float[Tensor, "steps batch outputs"]
Theta = Float[Tensor, " numbers"]
DIFFERENCE = 1e-5
"""Relative step of central differences."""


class FreeParameter(NamedTuple):
    """A free hyper-parameter: its name, where batch dimensions go, and whether steps differ."""

    name: str
    batch_dim: int
    per_step: bool


def list_free_parameters(algorithm: Algorithm[Any, Any]) -> list[FreeParameter]:
    """List the declared hyper-parameters that an algorithm has a value for."""
    return [
        FreeParameter(name, *declared)
        for name, declared in algorithm.hyperparameters().items()
        if isinstance(getattr(algorithm, name), Tensor)
    ]


def free_numbers(algorithm: Algorithm[Any, Any]) -> Algorithm[Any, Any]:
    """Make tensors of declared hyper-parameters that are plain numbers."""
    values = {
        name: torch.full((1,) if part.per_step else (), float(value), dtype=torch.float64)
        for name, part in algorithm.hyperparameters().items()
        if isinstance(value := getattr(algorithm, name), int | float)
    }
    return replace(algorithm, **values) if values else algorithm  # pyright: ignore[reportArgumentType]


def pack_parameters(algorithm: Algorithm[Any, Any]) -> Theta:
    """Return θ, all free hyper-parameters of an algorithm in one vector."""
    values = [getattr(algorithm, part.name).flatten() for part in list_free_parameters(algorithm)]
    return torch.cat(values) if values else torch.zeros(0, dtype=torch.float64)


def unpack_parameters(algorithm: Algorithm[Any, Any], theta: Theta) -> Algorithm[Any, Any]:
    """Return the algorithm with the values of θ."""
    values, parts = {}, list_free_parameters(algorithm)
    sizes = [getattr(algorithm, part.name).numel() for part in parts]
    for part, piece in zip(parts, theta.split(sizes), strict=True):
        values[part.name] = piece.reshape(getattr(algorithm, part.name).shape)
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def repeat_per_step(algorithm: Algorithm[Any, Any], steps: int) -> Algorithm[Any, Any]:
    """Give each of `steps` steps its own copy of the first step's values."""
    values = {}
    for part in list_free_parameters(algorithm):
        value = getattr(algorithm, part.name)
        if part.per_step:
            values[part.name] = value[:1].repeat(steps, *[1] * (value.ndim - 1))
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def average_steps(algorithm: Algorithm[Any, Any]) -> Algorithm[Any, Any]:
    """Return the algorithm with the mean over steps of its values per step."""
    parts = [part.name for part in list_free_parameters(algorithm) if part.per_step]
    values = {name: getattr(algorithm, name).mean(dim=0, keepdim=True) for name in parts}
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def slice_steps(algorithm: Algorithm[Any, Any], first: int, last: int) -> Algorithm[Any, Any]:
    """Return the algorithm with the values of steps `first` to `last` − 1 only."""
    parts = [part.name for part in list_free_parameters(algorithm) if part.per_step]
    values = {name: getattr(algorithm, name)[first:last] for name in parts}
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def find_owning_steps(algorithm: Algorithm[Any, Any]) -> Float[Tensor, " numbers"]:
    """Return the step that each number of θ belongs to; −1 if it belongs to all."""
    owners = []
    for part in list_free_parameters(algorithm):
        value = getattr(algorithm, part.name)
        count = len(value) if part.per_step else 1
        steps = torch.arange(count, dtype=torch.float64) if part.per_step else -torch.ones(1)
        owners.append(steps.double().repeat_interleave(value.numel() // count))
    return torch.cat(owners) if owners else torch.zeros(0, dtype=torch.float64)


def predict_steps(algorithm: Algorithm[Any, Any], problem: Any, steps: int) -> Predictions:
    """Return an algorithm's predictions for the queries after 0, 1, …, `steps` steps."""
    return predict_at_steps(algorithm, problem, range(steps + 1))


def predict_at_steps(
    algorithm: Algorithm[Any, Any], problem: Any, steps: Sequence[int]
) -> Predictions:
    """Return an algorithm's predictions for the queries after each of these steps."""
    problem, rows = copy_problem(problem), {}
    for k, state in enumerate(algorithm.states(problem, max(steps))):
        if k in steps:
            rows[k] = algorithm.predict(problem, state).clone()
    return select_queries(problem, torch.stack([rows[k] for k in steps]))


def predict_state(
    algorithm: Algorithm[Any, Any], problem: Any, state: Any
) -> Float[Tensor, "batch outputs"]:
    """Return a state's predictions for the queries."""
    return select_queries(problem, algorithm.predict(problem, state))


def differentiate_predictions(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    steps: Sequence[int],
    before: tuple[int, Any] | None = None,
) -> tuple[Float[Tensor, "k batch outputs"], Float[Tensor, "k batch outputs numbers"]]:
    """Return the predictions after some steps, and their derivatives by θ.

    `before` is a step number with its state: the run starts there, and earlier steps do not count.
    An algorithm that takes no values per instance is differentiated by differences.
    """
    if not takes_values_per_instance(algorithm, problem):
        return _difference_predictions(algorithm, problem, steps, before)
    parts, batch, problem = list_free_parameters(algorithm), len(problem.x), copy_problem(problem)
    leaves = [_copy_per_instance(getattr(algorithm, part.name), part, batch) for part in parts]
    each = replace(algorithm, **{p.name: v for p, v in zip(parts, leaves, strict=True)})  # pyright: ignore[reportArgumentType]
    k, state = (0, each.init(problem)) if before is None else (before[0], copy_state(before[1]))
    predictions, last = {}, max(steps)
    while True:
        if k in steps:
            predictions[k] = predict_state(each, problem, state)
        if k == last:
            break
        state = each.step(problem, state, k)
        k += 1
    slopes = {k: _compute_jacobian(value, leaves, parts) for k, value in predictions.items()}
    values = torch.stack([predictions[k] for k in steps])
    return values.detach(), torch.stack([slopes[k] for k in steps])


_takes_values: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def takes_values_per_instance(algorithm: Algorithm[Any, Any], problem: Any) -> bool:
    """Return whether each instance may have its own hyper-parameters, by trying it once.

    A user-defined class may be able to multiply a vector by a number, and not by a vector of
    numbers.
    """
    kind = type(algorithm)
    if kind not in _takes_values:
        try:
            _takes_values[kind] = _try_values_per_instance(algorithm, copy_problem(problem[:3]))
        except (RuntimeError, TypeError, ValueError, IndexError):
            _takes_values[kind] = False
    return _takes_values[kind]


def _try_values_per_instance(algorithm: Algorithm[Any, Any], few: Any) -> bool:
    parts, theta = list_free_parameters(algorithm), pack_parameters(algorithm)
    own = [unpack_parameters(algorithm, theta * (1 + 0.01 * k)) for k in range(len(few.x))]
    values = {
        part.name: torch.stack([getattr(a, part.name) for a in own], part.batch_dim)
        for part in parts
    }
    for value in values.values():
        value.requires_grad_()
    together = predict_steps(replace(algorithm, **values), few, 2)  # pyright: ignore[reportArgumentType]
    alone = [predict_steps(a, few, 2)[:, k] for k, a in enumerate(own)]
    same = torch.allclose(together, torch.stack(alone, dim=1), rtol=1e-9, equal_nan=True)
    return same and (together.requires_grad or not len(theta))


def _difference_predictions(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    steps: Sequence[int],
    before: tuple[int, Any] | None,
) -> tuple[Float[Tensor, "k batch outputs"], Float[Tensor, "k batch outputs numbers"]]:
    """Differentiate by central differences, one number after another."""
    theta = pack_parameters(algorithm)

    def predict(numbers: Theta) -> Predictions:
        copied, moved = copy_problem(problem), unpack_parameters(algorithm, numbers)
        k, state = (0, moved.init(copied)) if before is None else (before[0], copy_state(before[1]))
        rows = {k: predict_state(moved, copied, state)}
        for step in range(k, max(steps)):
            state = moved.step(copied, state, step)
            rows[step + 1] = predict_state(moved, copied, state)
        return torch.stack([rows[step].detach() for step in steps])

    columns = []
    for place in range(len(theta)):
        size = DIFFERENCE * max(float(theta[place].abs()), DIFFERENCE)
        move = torch.zeros_like(theta)
        move[place] = size
        columns.append((predict(theta + move) - predict(theta - move)) / (2 * size))
    return predict(theta), torch.stack(columns, dim=-1)


def _copy_per_instance(value: Tensor, part: FreeParameter, batch: int) -> Tensor:
    """Return a copy of a value for every instance, to differentiate by."""
    shape = [*value.shape[: part.batch_dim], batch, *value.shape[part.batch_dim :]]
    return value.detach().unsqueeze(part.batch_dim).expand(shape).clone().requires_grad_()


def _compute_jacobian(
    prediction: Float[Tensor, "batch outputs"], leaves: list[Tensor], parts: list[FreeParameter]
) -> Float[Tensor, "batch outputs numbers"]:
    batch = len(prediction)
    if not prediction.requires_grad:
        return prediction.new_zeros(
            *prediction.shape, sum(leaf.numel() // batch for leaf in leaves)
        )
    rows = []
    for output in prediction.unbind(dim=-1):
        slopes = torch.autograd.grad(
            output.sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        moved = [s.movedim(p.batch_dim, 0) for s, p in zip(slopes, parts, strict=True)]
        rows.append(torch.cat([slope.reshape(batch, -1) for slope in moved], dim=-1))
    return torch.stack(rows, dim=-2)
