"""Write the numbers of a run's history for TensorBoard, into one event file per run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.errors import FileError, MissingLibraryError
from innerloop.links import make_folder, open_file

BOARD = "tensorboard"
FILE_VERSION = "brain.Event:2"
_START = 1
"""TensorBoard's SessionLog.START, which withdraws the steps that follow in earlier files."""


class Board:
    """Writes the rows of a history as TensorBoard scalars to a subfolder of the run.

    Errors in writing the file are reported to `notice` and do not end the training.
    """

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        check_tensorboard()
        self._place, self._notice = folder / BOARD, notice
        self._writer: Any = None
        self._count, self._broken = 0, False

    def update(self, history: list[dict[str, Any]]) -> None:
        """Write the rows that were added since the last call, or since the run was stopped."""
        self._attempt(lambda: self._write(history))

    def close(self) -> None:
        if self._writer is not None:
            self._attempt(self._writer.close)

    def _write(self, history: list[dict[str, Any]]) -> None:
        writer = self._writer or self._open(history)
        for row in history[self._count :]:
            values = {name: value for name, value in row.items() if name != "step"}
            scalars = [{"tag": name, "simple_value": value} for name, value in values.items()]
            self._add_event(step=int(row["step"]), summary={"value": scalars})
        self._count = len(history)
        writer.flush()

    def _open(self, history: list[dict[str, Any]]) -> Any:
        """Open a new file, and withdraw later steps than this history's from earlier files."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        resumed = self._place.exists()
        make_folder(self._place)
        # TensorBoard reads the files of a folder in the order of their names.
        now = time.time_ns()
        name = f"{now // 10**9:010d}.{now % 10**9:09d}.{platform.node()}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        handle = open_file(self._place / f"events.out.tfevents.{name}", flags)
        self._writer = RecordWriter(os.fdopen(handle, "wb"))
        self._add_event(file_version=FILE_VERSION)
        if resumed:
            self._count = len(history)
            purged = int(history[-1]["step"]) + 1 if history else 0
            self._add_event(step=purged, session_log={"status": _START})
        return self._writer

    def _add_event(self, **fields: Any) -> None:
        from tensorboard.compat.proto import event_pb2

        events: Any = event_pb2  # its classes are made at import, which a type checker cannot see
        event = events.Event(wall_time=time.time(), **fields)
        self._writer.write(event.SerializeToString())

    def _attempt(self, act: Callable[[], None]) -> None:
        """Run a write to the file; report its first error once, and skip all later writes."""
        if self._broken:
            return
        try:
            act()
        except (OSError, FileError) as error:
            self._broken = True
            reason = getattr(error, "strerror", None) or error
            self._notice(f"cannot write {self._place}: {reason}; training continues without it")


def check_tensorboard() -> None:
    """Raise `MissingLibraryError` if the tensorboard library is not installed."""
    try:
        import tensorboard
    except ImportError:
        raise MissingLibraryError(
            "--tensorboard needs the extra `tensorboard`: pip install 'innerloop[tensorboard]'"
        ) from None
    assert tensorboard
