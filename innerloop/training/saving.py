"""Write the checkpoints of a run at regular intervals, and restore a run from its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from innerloop.errors import FileError, InputError
from innerloop.training import checkpoint
from innerloop.training.environment import Environment
from innerloop.training.resuming import ENVIRONMENTS, read_run
from innerloop.training.settings import Settings


@runtime_checkable
class Resumable(Protocol):
    """An object whose state a checkpoint stores: a training run."""

    settings: Settings
    environments: list[Environment]

    def capture_state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...
    def extend(self, steps: int) -> None: ...


class Checkpoints:
    """Writes the checkpoints of a training run to `path`; writes nothing if `path` is None.

    If `writes` is False, checkpoints are only read, because another process writes them.
    """

    def __init__(
        self,
        training: Resumable,
        path: Path | None,
        about: dict[str, Any],
        every: float,
        notice: Callable[[str], None],
        writes: bool = True,
    ) -> None:
        self.training, self.path, self.about = training, path, about
        self.every, self.notice, self.writes = every, notice, writes
        self._last = time.monotonic()

    def begin(
        self,
        environment: Environment | None,
        steps: int | None,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Restore the run from its checkpoint if there is one; extend it if `steps` is larger.

        A new or an extended run calls `wait` and then writes a checkpoint at once. Until then,
        other processes may read the old file.
        """
        training, begun = self.training, self.path is not None and self.path.exists()
        if self.path is not None and begun:
            names = self.about.get("settings", {})
            defaults = {f.name: f.default for f in fields(training.settings) if f.name in names}
            state, training.environments = read_run(
                self.path, self.about, environment, self.notice, defaults
            )
            try:
                training.restore(state)
            except InputError as error:
                raise FileError(
                    f"{self.path} does not hold a state of this training: {error}"
                ) from None
        elif environment is not None:
            training.environments = [{"step": 0, **environment}]
        if training.environments:
            self.about = {**self.about, ENVIRONMENTS: training.environments}
        wait()
        before = training.settings.steps
        longer = begun and steps is not None and steps > before
        if longer and steps is not None:
            self.notice(f"{self.path} goes on to {steps} steps; {before} were planned")
            training.extend(steps)
            settings = {**self.about.get("settings", {}), "steps": steps}
            self.about = {**self.about, "settings": settings}
        if longer or not begun:
            self.save()

    def save(self) -> None:
        """Write a checkpoint now."""
        if self.path is not None and self.writes:
            checkpoint.write(self.path, self.about, self.training.capture_state())

    def save_if_due(self) -> None:
        """Write a checkpoint if the last one is old enough; report an error and continue."""
        if self.path is None or time.monotonic() - self._last < self.every:
            return
        try:
            self.save()
        except FileError as error:
            self.notice(f"{error}; training continues, resumable from the last checkpoint")
        self._last = time.monotonic()
