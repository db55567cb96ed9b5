"""Atomic writing: a file is complete or absent, never half-written."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
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
    """Write to a temporary name beside `path`, then rename; both reach the disk before it ends."""
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
        temporary = None
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if temporary is not None:  # also after an interrupt
            with suppress(OSError):
                os.unlink(temporary)
    _flush_folder(path.parent)


def remove_partial_files(folder: Path) -> list[Path]:
    """Remove what killed writes left in a folder; only for who knows that nobody writes there."""
    removed = []
    for path in sorted(folder.glob(f"{PARTIAL_PREFIX}*")):
        with suppress(OSError):
            path.unlink()
            removed.append(path)
    return removed


def _flush_folder(folder: Path) -> None:
    """Flush a folder to disk, so that a rename in it outlasts a power failure.

    Windows, and some file systems, cannot: a rename there is as durable as they make it.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
