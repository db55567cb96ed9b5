"""Check the contents of a checkpoint or a model file before they are used.

A checksum detects damage but not deliberate changes, because anybody can compute it again. So
names, shapes, dtypes and ranges must be those of the model that the recipe builds, and step,
history and end must be possible for a run. `optimizer_state` checks the state of the optimiser.
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
"""Largest number of characters of a file's text that an error message shows."""


def require(holds: bool, message: str) -> None:
    """Raise an `InputError` unless a condition holds; the caller adds the name of the file."""
    if not holds:
        raise InputError(message)


def shorten(value: Any) -> str:
    """Format a value from a file for a message: short, on one line, without control characters."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def is_count(value: Any, most: float = math.inf) -> bool:
    """Return whether a value is a whole number from 0 to `most`; booleans are not."""
    return type(value) is int and 0 <= value <= most


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; booleans are not."""
    return type(value) in (int, float) and abs(value) <= 1.7e308  # also false for nan


def check_tensor(name: str, saved: Any, like: Tensor) -> None:
    """Check that a value is a tensor with the shape and dtype of another."""
    require(isinstance(saved, Tensor), f"{name} is not a tensor")
    require(
        saved.shape == like.shape and saved.dtype == like.dtype,
        f"{name} must be {like.dtype} of shape {tuple(like.shape)}, got {saved.dtype} of shape "
        f"{tuple(saved.shape)}",
    )


def check_weights(model: nn.Module, saved: Any) -> None:
    """Check weights and buffers against a built model: names, shapes, dtypes, finite entries.

    Integer arrays are places in the stream and must equal those of the model. A single integer is a
    counter and may differ.
    """
    expected = model.state_dict()
    require(isinstance(saved, Mapping), "its weights have no names")
    for name in expected:
        require(name in saved, f"weight {name} is missing")
    for name in saved:
        require(name in expected, f"there is a weight {shorten(name)} that the model does not have")
    for name, placed in expected.items():
        built = placed.detach().to("cpu")
        check_tensor(f"weight {name}", saved[name], built)
        if built.is_floating_point() or built.is_complex():
            wrong = ~torch.isfinite(saved[name]) & torch.isfinite(built)  # a mask may have −∞
            require(not bool(wrong.any()), f"weight {name} is not finite")
        elif built.ndim:
            require(
                torch.equal(saved[name], built),
                f"weight {name} differs from that of the recipe's model",
            )


def check_counters(state: Mapping[str, Any], settings: Settings) -> None:
    """Check that the step, time, last loss and history of a run agree with its settings."""
    step, last = state["step"], state["last"]
    require(
        is_count(step, settings.steps),
        f"its step must be a whole number up to steps={settings.steps}, got {shorten(step)}",
    )
    require(
        is_number(state["seconds"]) and state["seconds"] >= 0,
        f"its seconds must be a number of at least 0, got {shorten(state['seconds'])}",
    )
    require(
        is_number(last) if step else last is None,
        f"its last loss after {step} steps is {shorten(last)}",
    )
    extensions = state.get(EXTENSIONS, [])
    whole = is_extensions(extensions, step, settings.steps)
    require(whole, "its extensions are not possible for a run at this step")
    _check_history(state["history"], step, settings, [Extension(*each) for each in extensions])
    ended = find_stop_reason(state["history"], step, settings)
    require(
        state["ended"] == ended and isinstance(state["ended"], str),
        f"by its history it ended by {ended!r}, but it contains {shorten(state['ended'])}",
    )


def _check_history(
    history: Any, step: int, settings: Settings, extensions: list[Extension]
) -> None:
    due = list_due_steps(settings, extensions, step)
    require(
        isinstance(history, list) and len(history) == len(due),
        f"its history must have {len(due)} rows after {step} steps",
    )
    for k, row in enumerate(history):
        require(
            isinstance(row, dict) and all(isinstance(name, str) for name in row),
            f"row {k} of its history has no names",
        )
        plain = all(type(value) in (int, float) for value in row.values())
        whole = plain and all(is_number(row.get(name)) for name in ("loss", "seconds"))
        require(whole, f"row {k} of its history must contain numbers, one of them a loss")
        at = due[k]
        planned = settings_at(settings, extensions, at)
        rate, expected = row.get("learning_rate", math.nan), planned.learning_rate_at(at)
        same = is_count(row.get("step")) and row["step"] == at and is_number(rate)
        # The cosine may be rounded differently on another machine.
        same = same and math.isclose(rate, expected, abs_tol=1e-9 * settings.learning_rate)
        same = same and row.get(PLANNED) == planned_at(settings, extensions, at)
        require(same, f"row {k} of its history does not belong to step {at}")


def find_stop_reason(history: list[dict[str, float]], step: int, settings: Settings) -> str:
    """Return the reason why a run with this history stops at this step; "" if it continues."""
    if step == 0 or (step % settings.evaluate_every and step != settings.steps):
        return ""
    losses = [row["loss"] for row in history]
    if settings.target is not None and losses[-1] <= settings.target:
        return "target"
    patience = settings.patience
    if patience is not None and losses.index(min(losses)) < len(losses) - patience:
        return "patience"
    return "steps" if step >= settings.steps else ""
