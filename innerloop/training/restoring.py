"""Check the content of a checkpoint or a model file before it is used.

A checksum detects damage, but a person who changes a file can compute a new checksum. Therefore
names, shapes, dtypes and ranges must be those of the model that the recipe builds, and the step,
the history and the end must be possible for such a run. `optimizer_state` checks the optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.training.extending import (
    EXTENSIONS,
    PLANNED,
    Extension,
    is_extensions,
    list_due_steps,
    planned_at,
    settings_at,
)
from innerloop.training.settings import Settings

MAX_SHOWN = 60
"""Number of characters of a file's text that an error message shows."""


def require(holds: bool, message: str) -> None:
    """Raise an `InputError` unless a condition holds; the caller adds the name of the file."""
    if not holds:
        raise InputError(message)


def shorten(value: Any) -> str:
    """Write a value from a file for a message: short, on one line, without control characters."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def is_count(value: Any, most: float = math.inf) -> bool:
    """Return whether a value is an integer from 0 to `most`; booleans do not count."""
    return type(value) is int and 0 <= value <= most


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; booleans do not count."""
    return type(value) in (int, float) and abs(value) <= 1.7e308  # also false for nan


def check_tensor(name: str, found: Any, like: Tensor) -> None:
    """Check that a value is a tensor with the shape and dtype of another."""
    require(isinstance(found, Tensor), f"{name} is not a tensor")
    require(
        found.shape == like.shape and found.dtype == like.dtype,
        f"{name} should be {like.dtype} of shape {tuple(like.shape)}, is {found.dtype} of shape "
        f"{tuple(found.shape)}",
    )


def check_weights(model: nn.Module, found: Any) -> None:
    """Check weights and buffers against a built model: names, shapes, dtypes, finite entries.

    Arrays of integers are indices and part of the structure, so they must equal those of the built
    model. A single integer is a counter and may differ.
    """
    expected = model.state_dict()
    require(isinstance(found, Mapping), "its weights have no names")
    for name in expected:
        require(name in found, f"there is no weight {name}")
    for name in found:
        require(name in expected, f"there is a weight {shorten(name)} that the model has not")
    for name, placed in expected.items():
        built = placed.detach().to("cpu")
        check_tensor(f"weight {name}", found[name], built)
        if built.is_floating_point() or built.is_complex():
            wrong = ~torch.isfinite(found[name]) & torch.isfinite(built)  # a mask may have −∞
            require(not bool(wrong.any()), f"weight {name} is not finite")
        elif built.ndim:
            require(torch.equal(found[name], built), f"weight {name} is not the recipe's")


def check_counters(state: Mapping[str, Any], settings: Settings) -> None:
    """Check that the step, time, last loss and history of a run agree with its settings."""
    step, last = state["step"], state["last"]
    require(
        is_count(step, settings.steps),
        f"its step should be a whole number up to steps={settings.steps}, is {shorten(step)}",
    )
    require(
        is_number(state["seconds"]) and state["seconds"] >= 0,
        f"its seconds should be a number of at least 0, is {shorten(state['seconds'])}",
    )
    require(
        is_number(last) if step else last is None,
        f"its last loss after {step} steps is {shorten(last)}",
    )
    extensions = state.get(EXTENSIONS, [])
    whole = is_extensions(extensions, step, settings.steps)
    require(whole, "its extensions are not those of a run that was given more steps")
    _check_history(state["history"], step, settings, [Extension(*each) for each in extensions])
    ended = find_stop_reason(state["history"], step, settings)
    require(
        state["ended"] == ended and isinstance(state["ended"], str),
        f"a run with its history has ended by {ended!r}, but it says {shorten(state['ended'])}",
    )


def _check_history(
    history: Any, step: int, settings: Settings, extensions: list[Extension]
) -> None:
    due = list_due_steps(settings, extensions, step)
    require(
        isinstance(history, list) and len(history) == len(due),
        f"its history should have {len(due)} rows after {step} steps",
    )
    for k, row in enumerate(history):
        require(
            isinstance(row, dict) and all(isinstance(name, str) for name in row),
            f"row {k} of its history has no names",
        )
        plain = all(type(value) in (int, float) for value in row.values())
        whole = plain and all(is_number(row.get(name)) for name in ("loss", "seconds"))
        require(whole, f"row {k} of its history is not one of numbers with a loss")
        at = due[k]
        planned = settings_at(settings, extensions, at)
        rate, expected = row.get("learning_rate", math.nan), planned.learning_rate_at(at)
        same = is_count(row.get("step")) and row["step"] == at and is_number(rate)
        # Another machine's cosine may round otherwise.
        same = same and math.isclose(rate, expected, abs_tol=1e-9 * settings.learning_rate)
        same = same and row.get(PLANNED) == planned_at(settings, extensions, at)
        require(same, f"row {k} of its history is not that of step {at}")


def find_stop_reason(history: list[dict[str, float]], step: int, settings: Settings) -> str:
    """Return the reason why a run with this history stops at this step; empty if it continues."""
    if step == 0 or (step % settings.evaluate_every and step != settings.steps):
        return ""
    losses = [row["loss"] for row in history]
    if settings.target is not None and losses[-1] <= settings.target:
        return "target"
    patience = settings.patience
    if patience is not None and losses.index(min(losses)) < len(losses) - patience:
        return "patience"
    return "steps" if step >= settings.steps else ""
