"""Runs that were given more steps than they were begun with, and what that means for their rows.

A schedule decays to the last step, so that the rate of a row depends on how many steps were planned
when it was made; and a run that had ended has a row at its end, due or not. Rows made after an
extension have a column `steps`: the number that was planned from then on.
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
    """The step at which a run was given more steps, and how many it was to have before."""

    step: int
    before: int


def is_extensions(value: Any, step: int, steps: int) -> bool:
    """Tell whether a value from a file lists extensions of a run, now at `step` of `steps`."""
    pairs: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(p, list) and list(map(type, p)) == [int, int] for p in pairs):
        return False
    at, planned = [0, *(p[0] for p in pairs), step], [*(p[1] for p in pairs), steps]
    rising = all(a <= b for a, b in pairwise(at))
    growing = all(a < b for a, b in pairwise(planned))
    return rising and growing and all(p[0] <= p[1] and p[1] > 0 for p in pairs)


def settings_at(settings: Settings, extensions: Sequence[Extension], step: int) -> Settings:
    """Return the settings under which the row of a step was made."""
    for extension in extensions:
        if step <= extension.step:
            return replace(settings, steps=extension.before)
    return settings


def planned_at(settings: Settings, extensions: Sequence[Extension], step: int) -> int | None:
    """Return what the row of a step has in its column `steps`; None where it has none."""
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
