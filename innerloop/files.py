"""Atomic writing: a file is complete or absent, never half-written, and no link is followed."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from innerloop.errors import FileError
from innerloop.links import NO_LINK, PLAIN, open_parent, refuse_links, remove_file

PARTIAL_PREFIX = ".innerloop-"
"""Prefix of the name of a file that is still being written."""


def check_writable(path: Path) -> None:
    """Raise an error if a path cannot be written; called before a long computation starts."""
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
    """Write to a temporary file beside `path`, flush it to disk, and rename it to `path`.

    If the path contains a link, an error is raised. For a path that the user named, pass
    `resolve_links(path)`.
    """
    check_writable(path)
    refuse_links(path)
    temporary = f"{PARTIAL_PREFIX}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN | NO_LINK
    try:
        with open_parent(path) as (parent, descriptor):
            try:
                handle = os.open(parent / temporary, flags, 0o666, dir_fd=descriptor)
                with os.fdopen(handle, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                names = parent / temporary, parent / path.name
                os.replace(*names, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            except BaseException:  # also an interrupt
                with suppress(OSError):
                    os.unlink(parent / temporary, dir_fd=descriptor)
                raise
            _flush_folder(parent, descriptor)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from None


def remove_partial_files(folder: Path) -> None:
    """Remove unfinished files of killed processes from a folder to which no process writes now."""
    for path in sorted(folder.glob(f"{PARTIAL_PREFIX}*")):
        with suppress(OSError, FileError):
            remove_file(path)


def _flush_folder(place: Path, folder: int | None) -> None:
    """Flush a folder to disk, so that a rename in it outlasts a power failure.

    Windows and some file systems cannot do this: a rename there is as durable as they make it.
    """
    with suppress(OSError):
        handle = os.open(place, os.O_RDONLY, dir_fd=folder)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
