"""Extend a finished or interrupted run to more steps, and the effect on the rows of its history.

A schedule decays until the last step, so the learning rate in a row depends on the number of steps
that were planned when the row was written. A run that had ended also has a row at its old last
step. Rows after an extension have a column `steps`, the number of steps planned since then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from innerloop.training.settings import Settings

EXTENSIONS = "extensions"
"""The key of the list of extensions, in a state and in the description of a model file."""
PLANNED = "steps"
"""The column of a history with the number of planned steps, after the first extension."""


class Extension(NamedTuple):
    """The step at which a run was extended, and the number of steps planned before."""

    step: int
    before: int


def is_extensions(value: Any, step: int, steps: int) -> bool:
    """Return whether a value from a file is a list of extensions of a run at `step` of `steps`."""
    pairs: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(p, list) and list(map(type, p)) == [int, int] for p in pairs):
        return False
    at, planned = [0, *(p[0] for p in pairs), step], [*(p[1] for p in pairs), steps]
    rising = all(a <= b for a, b in pairwise(at))
    growing = all(a < b for a, b in pairwise(planned))
    return rising and growing and all(p[0] <= p[1] and p[1] > 0 for p in pairs)


def settings_at(settings: Settings, extensions: Sequence[Extension], step: int) -> Settings:
    """Return the settings that applied when the row of a step was written."""
    for extension in extensions:
        if step <= extension.step:
            return replace(settings, steps=extension.before)
    return settings


def planned_at(settings: Settings, extensions: Sequence[Extension], step: int) -> int | None:
    """Return the value of the column `steps` in the row of a step; None if it is empty."""
    if not extensions or step <= extensions[0].step:
        return None
    return settings_at(settings, extensions, step).steps


def list_due_steps(settings: Settings, extensions: Sequence[Extension], step: int) -> list[int]:
    """Return the steps that have a row in the history of a run after `step` steps."""
    if not step:
        return []
    ends = {e.before for e in extensions if e.step == e.before} | {settings.steps}
    due = {*range(0, step + 1, settings.evaluate_every), *(end for end in ends if end <= step)}
    return sorted(due)
