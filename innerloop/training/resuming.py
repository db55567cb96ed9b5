"""Read a checkpoint to resume from; compare its settings and conditions with the current ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.training import checkpoint
from innerloop.training.environment import Environment, describe_differences, is_environment
from innerloop.training.restoring import is_count, shorten

ENVIRONMENTS = "environments"
"""The key of the conditions of a run in its description, each with its first `step`."""
MAX_DIFFERENCES = 5
"""Largest number of differing settings that an error message lists."""


def read_run(
    path: Path,
    about: dict[str, Any],
    here: Environment | None,
    notice: Callable[[str], None],
    defaults: dict[str, Any],
) -> tuple[dict[str, Any], list[Environment]]:
    """Read the state of a run and its environments; the current one is added if it is new.

    `defaults` are values of settings that files of older versions may not contain.

    A checkpoint of another training raises an error. Other threads, versions or code do not, since
    libraries may be upgraded during a long run. But the weights may then differ from those of an
    uninterrupted run, which is reported to `notice`.
    """
    saved, state = checkpoint.read(path)
    if isinstance(settings := saved.get("settings"), dict):
        saved = {**saved, "settings": {**defaults, **settings}}
    check_same_training(path, saved, about)
    stored = saved.get(ENVIRONMENTS, [])
    steps = [each.get("step") if is_environment(each) else None for each in _as_list(stored)]
    if not isinstance(stored, list) or not all(is_count(step) for step in steps):
        raise FileError(
            f"{path} does not contain the threads, versions and code with which it was written"
        )
    if here is None:
        return state, stored
    different = describe_differences(stored[-1], here) if stored else "none are recorded"
    if different:
        notice(
            f"{path} continues with other threads, versions or code ({different}): its weights may "
            "differ from those of an uninterrupted run"
        )
        stored = [*stored, {"step": state.get("step"), **here}]
    return state, stored


def check_same_training(path: Path, saved: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise `FileError` if a checkpoint belongs to a training run with other settings."""
    stored, here = _flatten(saved), _flatten(requested)
    names = [name for name in {**stored, **here} if stored.get(name) != here.get(name)]
    if names:
        differences = [
            f"{name if name in here else shorten(name)} is {shorten(stored.get(name))} there, "
            f"{shorten(here.get(name))} here"
            for name in names[:MAX_DIFFERENCES]
        ]
        differences += ["…"] if len(names) > MAX_DIFFERENCES else []
        raise FileError(
            f"{path} belongs to another training: {', '.join(differences)}; resume with the same "
            "settings, or train into another folder"
        )


def _flatten(about: dict[str, Any]) -> dict[str, Any]:
    """Merge a run's description and its settings into one table."""
    settings = about.get("settings", {})
    description = {
        name: value for name, value in about.items() if name not in ("settings", ENVIRONMENTS)
    }
    return {**description, **(settings if isinstance(settings, dict) else {"settings": settings})}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
