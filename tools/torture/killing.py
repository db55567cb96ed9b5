"""Kill this process at a chosen file operation, or at a chosen moment.

An operation is a write, a flush to disk, half of a write, or an event below a folder that Python
itself audits (opening for writing, renaming, removing, making a folder, changing a mode, locking).
A kill at any of these leaves the disk in another state.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

AUDITED = {
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"),
    *("os.link", "os.symlink", "os.utime", "fcntl.flock", "fcntl.lockf", "tempfile.mkstemp"),
}


class Killer:
    """Counts the file operations below a folder, and kills the process before number `target`."""

    def __init__(self, folder: Path, target: int | None) -> None:
        self.folder, self.target = str(folder), target
        self.count = 0

    def install(self) -> None:
        """Start to watch this process; this cannot be undone."""
        sys.addaudithook(self._audit)
        fsync, write, fdopen = os.fsync, os.write, os.fdopen

        def counted_fsync(handle: Any) -> None:
            self.tick()
            fsync(handle)

        def counted_write(handle: int, data: Any) -> int:
            self.tick(lambda: write(handle, bytes(data)[: len(data) // 2]))
            return write(handle, data)

        def counted_fdopen(handle: int, mode: str = "r", *rest: Any, **named: Any) -> Any:
            stream = fdopen(handle, mode, *rest, **named)
            return _HalfWriter(stream, self) if mode == "wb" else stream

        os.fsync, os.write, os.fdopen = counted_fsync, counted_write, counted_fdopen

    def tick(self, half: Any = None) -> None:
        """Count an operation; at the target, perform half of it and end the process."""
        self.count += 1
        if self.count == self.target:
            if half is not None:
                half()
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in AUDITED:
            return
        if event == "open" and not _is_writing(arguments):
            return
        names = arguments[:1] if event == "open" else arguments
        words = [os.fsdecode(a) for a in names if isinstance(a, str | bytes | os.PathLike)]
        if event.startswith("fcntl") or any(map(self._is_inside, words)):
            self.tick()

    def _is_inside(self, name: str) -> bool:
        """Return whether a file is in the folder; a relative name is that of an open folder."""
        return name.startswith(self.folder) or not os.path.isabs(name)


class _HalfWriter:
    """A binary stream whose writes count as two operations: a kill comes before a write, or
    inside it.
    """

    def __init__(self, stream: IO[bytes], killer: Killer) -> None:
        self._stream, self._killer = stream, killer

    def write(self, data: bytes) -> int:
        def write_half() -> None:
            self._stream.write(data[: len(data) // 2])
            self._stream.flush()

        self._killer.tick()
        self._killer.tick(write_half)
        return self._stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _HalfWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stream.close()


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    """Return whether an audited `open` is for writing, by its mode or its flags."""
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def kill_after(seconds: float) -> None:
    """Make the system kill this process after some time, without a chance to clean up."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))
