"""Scalars for TensorBoard: one event file per run, with every number of its history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.errors import MissingLibraryError

BOARD = "tensorboard"


class Board:
    """Writes rows of a history as TensorBoard's scalars into a folder of the run's.

    Trouble with the file is told to `notice` and ends no training.
    """

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        check_tensorboard()
        self._place, self._notice = folder / BOARD, notice
        self._writer: Any = None
        self._count, self._broken = 0, False

    def update(self, history: list[dict[str, Any]]) -> None:
        """Write the rows that are new since the last call, or since the run was stopped."""
        self._attempt(lambda: self._write(history))

    def close(self) -> None:
        if self._writer is not None:
            self._attempt(self._writer.close)

    def _write(self, history: list[dict[str, Any]]) -> None:
        if self._writer is None:
            self._writer = self._open(history)
        for row in history[self._count :]:
            for name, value in row.items():
                if name != "step":
                    self._writer.add_scalar(name, value, int(row["step"]))
        self._count = len(history)
        self._writer.flush()

    def _open(self, history: list[dict[str, Any]]) -> Any:
        """Open a file; what an earlier one has after this history, a kill has undone."""
        from torch.utils.tensorboard import SummaryWriter

        options: dict[str, Any] = {}
        if self._place.exists():
            self._count = len(history)
            options["purge_step"] = int(history[-1]["step"]) + 1 if history else 0
        return SummaryWriter(str(self._place), **options)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Run a write to the file; report its first OSError once, and skip all later writes."""
        if self._broken:
            return
        try:
            act()
        except OSError as error:
            self._broken = True
            reason = error.strerror or error
            self._notice(f"cannot write {self._place}: {reason}; training continues without it")


def check_tensorboard() -> None:
    """Refuse to go on where the library is missing."""
    try:
        import tensorboard
    except ImportError:
        raise MissingLibraryError(
            "--tensorboard needs the extra `tensorboard`: pip install 'innerloop[tensorboard]'"
        ) from None
    assert tensorboard
