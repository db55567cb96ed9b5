"""Atomic writing: a file is complete or absent, never half-written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from innerloop.errors import FileError

PARTIAL_PREFIX = ".innerloop-"
"""Prefix of the name of a file that is still being written."""


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any work is done for it."""
    try:
        special, folder = path.exists() and not path.is_file(), path.parent.is_dir()
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from None
    if special:
        raise FileError(f"cannot write {path}: it is a folder or a device, give a file name")
    if not folder:
        raise FileError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise FileError(f"cannot write {path}: no permission to write into {path.parent}")


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary name beside `path`, then rename."""
    check_writable(path)
    path = path.resolve()  # replaces the file that a link points to, not the link
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=PARTIAL_PREFIX)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_read_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise FileError(f"cannot write {path}: {error.strerror or error}") from None


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
