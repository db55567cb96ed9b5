"""Extend a finished or interrupted run to more steps, and check the rows of an extended run.

A schedule decays until the last planned step, so the learning rate in a row depends on the number
of steps that were planned at the time. A run that had ended also has a row for its last step.
Rows after an extension have a column `steps`, the number of steps planned since then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from innerloop.training.settings import Settings

EXTENSIONS = "extensions"
"""The entry of a state, and of a model file's description, that lists a run's extensions."""
PLANNED = "steps"
"""The column of a history with the steps that were planned, from the first extension on."""


class Extension(NamedTuple):
    """An extension of a run: the step at which it happened, and the number planned before it."""

    step: int
    before: int


def is_extensions(value: Any, step: int, steps: int) -> bool:
    """Return whether a value from a file is a valid list of extensions of a run at `step`."""
    pairs: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(p, list) and list(map(type, p)) == [int, int] for p in pairs):
        return False
    at, planned = [0, *(p[0] for p in pairs), step], [*(p[1] for p in pairs), steps]
    rising = all(a <= b for a, b in pairwise(at))
    growing = all(a < b for a, b in pairwise(planned))
    return rising and growing and all(p[0] <= p[1] and p[1] > 0 for p in pairs)


def settings_at(settings: Settings, extensions: Sequence[Extension], step: int) -> Settings:
    """Return the settings that were in force when the row of a step was made."""
    for extension in extensions:
        if step <= extension.step:
            return replace(settings, steps=extension.before)
    return settings


def planned_at(settings: Settings, extensions: Sequence[Extension], step: int) -> int | None:
    """Return the value of the column `steps` in the row of a step; None if it has none."""
    if not extensions or step <= extensions[0].step:
        return None
    return settings_at(settings, extensions, step).steps


def list_due_steps(settings: Settings, extensions: Sequence[Extension], step: int) -> list[int]:
    """List the steps that have a row in the history of a run that has taken `step` steps."""
    if not step:
        return []
    ends = {e.before for e in extensions if e.step == e.before} | {settings.steps}
    due = {*range(0, step + 1, settings.evaluate_every), *(end for end in ends if end <= step)}
    return sorted(due)
