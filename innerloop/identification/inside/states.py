"""The tensors of an algorithm's state, by name; a state is one, a tuple of them, or a class.

A stream may hold a tensor in other words, which no linear map turns into it: values before they are
cut off, and what the next step needs of them. An algorithm says which by a method `restate`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.instances import copy_problem, copy_state

WHOLE = "state"
"""The name of a state that is a single tensor."""


def list_fields(state: Any, batch: int) -> dict[str, Tensor]:
    """Name the floating-point tensors of a state that have a row for each instance, if finite."""
    return {
        name: value
        for name, value in _walk(state, "")
        if value.is_floating_point()
        and value.shape[:1] == (batch,)
        and bool(torch.isfinite(value).all())
    }


@runtime_checkable
class Restating(Protocol):
    """An algorithm whose state has other forms."""

    def restate(self, problem: Any, state: Any) -> dict[str, Tensor]:
        """Return tensors in other words, each by the name of the one that it stands for."""
        ...


def list_forms(
    algorithm: Algorithm[Any, Any], problem: Any, state: Any, batch: int
) -> dict[str, list[Tensor]]:
    """List the forms of each tensor of a state that a stream may contain: itself, then its
    restatements.
    """
    forms = {name: [value] for name, value in list_fields(state, batch).items()}
    if isinstance(algorithm, Restating):
        for name, value in algorithm.restate(problem, state).items():
            forms.setdefault(name, []).append(value)
    return forms


def _walk(state: Any, name: str) -> Iterable[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield name or WHOLE, state
    for key, value in _list_parts(state):
        yield from _walk(value, f"{name}.{key}" if name else key)


def _list_parts(state: Any) -> list[tuple[str, Any]]:
    if isinstance(state, tuple):
        names = getattr(state, "_fields", [str(k) for k in range(len(state))])
        return list(zip(names, state, strict=True))
    if dataclasses.is_dataclass(state):
        return [(field.name, getattr(state, field.name)) for field in dataclasses.fields(state)]
    return []


def replace_fields(state: Any, values: Mapping[str, Tensor], name: str = "") -> Any:
    """Return the state with the named tensors replaced."""
    if isinstance(state, Tensor):
        return values.get(name or WHOLE, state)
    parts = {
        key: replace_fields(value, values, f"{name}.{key}" if name else key)
        for key, value in _list_parts(state)
    }
    if isinstance(state, tuple):
        return type(state)(*parts.values()) if hasattr(state, "_fields") else tuple(parts.values())
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return dataclasses.replace(state, **parts)
    return state


def compute_states(
    algorithm: Algorithm[Any, Any], problem: Any, steps: Iterable[int]
) -> dict[int, Any]:
    """Return the states after some numbers of steps."""
    steps, problem = set(steps), copy_problem(problem)
    states = enumerate(algorithm.states(problem, max(steps)))
    return {k: copy_state(state) for k, state in states if k in steps}


def continue_run(
    algorithm: Algorithm[Any, Any], problem: Any, state: Any, first: int, steps: Iterable[int]
) -> dict[int, Tensor]:
    """Predict after some numbers of steps, from a state after `first` of them."""
    steps, problem, state = set(steps), copy_problem(problem), copy_state(state)
    found = {}
    for k in range(first, max(steps) + 1):
        if k in steps:
            found[k] = algorithm.predict(problem, state).clone()
        if k < max(steps):
            state = algorithm.step(problem, state, k)
    return found
