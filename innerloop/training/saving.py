"""Read and write the checkpoints of a run, at its start and at intervals."""

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
    """The interface of a training whose state can be saved."""

    settings: Settings
    environments: list[Environment]

    def capture_state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...
    def extend(self, steps: int) -> None: ...


class Checkpoints:
    """The checkpoints of a training, in the file `path`; None means no checkpoints.

    If `writes` is false, checkpoints are only read, because another process writes them.
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
        """Restore the training from the file if there is one, and extend it to `steps` if needed.

        The first checkpoint of a run, or of an extended run, is written at once, but after `wait`
        returns, because other processes may still be reading the old file.
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
                    f"{self.path} does not contain a state of this training: {error}"
                ) from None
        elif environment is not None:
            training.environments = [{"step": 0, **environment}]
        if training.environments:
            self.about = {**self.about, ENVIRONMENTS: training.environments}
        wait()
        before = training.settings.steps
        longer = begun and steps is not None and steps > before
        if longer and steps is not None:
            self.notice(f"{self.path} continues to {steps} steps; {before} were planned")
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
        """Write a checkpoint if the last one is old enough; if this fails, only call `notice`."""
        if self.path is None or time.monotonic() - self._last < self.every:
            return
        try:
            self.save()
        except FileError as error:
            self.notice(f"{error}; training continues and can be resumed from the last checkpoint")
        self._last = time.monotonic()
