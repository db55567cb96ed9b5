"""An algorithm's free hyper-parameters as one vector θ, and the derivative of predictions by θ.

Free are the fields whose shape names `*batch`. They are given to every instance separately, and
since an instance sees its own copy only, one backward pass has the derivative of every instance by
every number: ∂ prediction_i / ∂ θ for all i at once, whatever the length of θ.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identify.instances import at_queries

Predictions = Float[Tensor, "steps batch outputs"]
Theta = Float[Tensor, " numbers"]


class Free(NamedTuple):
    """A free hyper-parameter: its name, where batch dimensions go, and if each step has its own."""

    name: str
    batch_at: int
    per_step: bool


def free(algorithm: Algorithm[Any, Any]) -> list[Free]:
    """The free hyper-parameters that an algorithm has a value for."""
    declared = _declared(type(algorithm))
    return [part for part in declared if isinstance(getattr(algorithm, part.name), Tensor)]


@functools.cache
def _declared(kind: type[Algorithm[Any, Any]]) -> list[Free]:
    hints, found = typing.get_type_hints(kind), []
    for name in (field.name for field in fields(kind)):  # pyright: ignore[reportArgumentType]
        options = (hints[name], *typing.get_args(hints[name]))
        dims = next((o.dim_str.split() for o in options if hasattr(o, "dim_str")), [])
        if "*batch" in dims:
            found.append(Free(name, dims.index("*batch"), "steps" in dims))
    return found


def packed(algorithm: Algorithm[Any, Any]) -> Theta:
    """θ of an algorithm."""
    values = [getattr(algorithm, part.name).flatten() for part in free(algorithm)]
    return torch.cat(values) if values else torch.zeros(0, dtype=torch.float64)


def unpacked(algorithm: Algorithm[Any, Any], theta: Theta) -> Algorithm[Any, Any]:
    """The algorithm with other values."""
    values, parts = {}, free(algorithm)
    sizes = [getattr(algorithm, part.name).numel() for part in parts]
    for part, piece in zip(parts, theta.split(sizes), strict=True):
        values[part.name] = piece.reshape(getattr(algorithm, part.name).shape)
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def lengthened(algorithm: Algorithm[Any, Any], steps: int) -> Algorithm[Any, Any]:
    """A value of its own for each of so many steps, all the same."""
    values = {}
    for part in free(algorithm):
        value = getattr(algorithm, part.name)
        if part.per_step:
            values[part.name] = value[:1].repeat(steps, *[1] * (value.ndim - 1))
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def window_of(algorithm: Algorithm[Any, Any], first: int, last: int) -> Algorithm[Any, Any]:
    """The algorithm from step `first` to before `last` alone, which then are its first."""
    parts = [part.name for part in free(algorithm) if part.per_step]
    values = {name: getattr(algorithm, name)[first:last] for name in parts}
    return replace(algorithm, **values)  # pyright: ignore[reportArgumentType]


def owner(algorithm: Algorithm[Any, Any]) -> Float[Tensor, " numbers"]:
    """The step that each number of θ belongs to; −1 where it belongs to all."""
    owners = []
    for part in free(algorithm):
        value = getattr(algorithm, part.name)
        count = len(value) if part.per_step else 1
        steps = torch.arange(count, dtype=torch.float64) if part.per_step else -torch.ones(1)
        owners.append(steps.double().repeat_interleave(value.numel() // count))
    return torch.cat(owners) if owners else torch.zeros(0, dtype=torch.float64)


def ran(algorithm: Algorithm[Any, Any], problem: Any, steps: int) -> Predictions:
    """What an algorithm says of the queries after 0, 1, …, `steps` steps."""
    states = algorithm.states(problem, steps)
    return torch.stack([said(algorithm, problem, state) for state in states])


def said(
    algorithm: Algorithm[Any, Any], problem: Any, state: Any
) -> Float[Tensor, "batch outputs"]:
    """What a state says of the queries."""
    return at_queries(problem, algorithm.predict(problem, state))


def derivative(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    steps: Sequence[int],
    before: tuple[int, Any] | None = None,
) -> tuple[Float[Tensor, "k batch outputs"], Float[Tensor, "k batch outputs numbers"]]:
    """Predictions after these steps, and their derivatives by θ.

    `before` is a step with its state, for derivatives by what comes after it alone.
    """
    parts, batch = free(algorithm), len(problem.x)
    leaves = [_copied(getattr(algorithm, part.name), part, batch) for part in parts]
    each = replace(algorithm, **{p.name: v for p, v in zip(parts, leaves, strict=True)})  # pyright: ignore[reportArgumentType]
    k, state = before if before is not None else (0, each.init(problem))
    found, last = {}, max(steps)
    while True:
        if k in steps:
            found[k] = said(each, problem, state)
        if k == last:
            break
        state = each.step(problem, state, k)
        k += 1
    predictions = torch.stack([found[k] for k in steps])
    slopes = {k: _slopes(prediction, leaves, parts) for k, prediction in found.items()}
    return predictions.detach(), torch.stack([slopes[k] for k in steps])


def _copied(value: Tensor, part: Free, batch: int) -> Tensor:
    """A copy for every instance, to differentiate by."""
    shape = [*value.shape[: part.batch_at], batch, *value.shape[part.batch_at :]]
    return value.detach().unsqueeze(part.batch_at).expand(shape).clone().requires_grad_()


def _slopes(
    prediction: Float[Tensor, "batch outputs"], leaves: list[Tensor], parts: list[Free]
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
        moved = [s.movedim(p.batch_at, 0) for s, p in zip(slopes, parts, strict=True)]
        rows.append(torch.cat([slope.reshape(batch, -1) for slope in moved], dim=-1))
    return torch.stack(rows, dim=-2)
