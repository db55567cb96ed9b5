"""Reading a checkpoint to go on from: is it the same training, and under the same conditions?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.training import checkpoint
from innerloop.training.environment import Environment, describe_differences, is_environment
from innerloop.training.restoring import is_count, shorten

ENVIRONMENTS = "environments"
"""The entry of a run's description that lists what it ran under, each from its `step` on."""
MAX_DIFFERENCES = 5
"""An error names at most this many settings that differ."""


def read_run(
    path: Path,
    about: dict[str, Any],
    here: Environment | None,
    notice: Callable[[str], None],
    defaults: dict[str, Any],
) -> tuple[dict[str, Any], list[Environment]]:
    """Read the state of a run and its environments, this one added if it is another.

    `defaults` are those of settings that an older version may not have had.

    Another training is refused. Other threads, versions or code are no error, since a long run
    outlives an upgrade, but its weights are then not those of an uninterrupted one: `notice` says.
    """
    saved, state = checkpoint.read(path)
    if isinstance(settings := saved.get("settings"), dict):
        saved = {**saved, "settings": {**defaults, **settings}}
    check_same_training(path, saved, about)
    there = saved.get(ENVIRONMENTS, [])
    steps = [each.get("step") if is_environment(each) else None for each in _as_list(there)]
    if not isinstance(there, list) or not all(is_count(step) for step in steps):
        raise FileError(f"{path} does not say under which threads, versions and code it was made")
    if here is None:
        return state, there
    different = describe_differences(there[-1], here) if there else "none are recorded"
    if different:
        notice(
            f"{path} goes on under other threads, versions or code ({different}): its weights may "
            "differ from those of an uninterrupted run"
        )
        there = [*there, {"step": state.get("step"), **here}]
    return state, there


def check_same_training(path: Path, saved: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise an error if a checkpoint belongs to a training run with other settings."""
    there, here = _flatten(saved), _flatten(requested)
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if names:
        differences = [
            f"{name if name in here else shorten(name)} is {shorten(there.get(name))} there, "
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
    own = {name: value for name, value in about.items() if name not in ("settings", ENVIRONMENTS)}
    return {**own, **(settings if isinstance(settings, dict) else {"settings": settings})}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
