"""Atomic writing: a file is complete or absent, never half-written, and links are not followed.

Folders of runs, cells and reports may come from other people. A link inside such a folder could
point anywhere, so the package neither reads nor writes through it.
"""

from __future__ import annotations

import os
import stat
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


def refuse_links(path: Path, root: Path | None = None) -> Path:
    """Return `path`, or raise an error if it is a link, or a folder between it and `root` is one.

    This is for names that the package itself chooses inside a folder. A link that the user names
    is followed.
    """
    inside = () if root is None else (p for p in path.parents if p != root and root in p.parents)
    for part in (path, *inside):
        if part.is_symlink():
            raise FileError(
                f"{part} is a link, expected a file or a folder of its own: links inside a folder "
                "of results are not followed; replace the link by what it points to"
            )
    return path


def refuse_links_inside(folder: Path) -> None:
    """Raise an error if an entry of a folder is a link."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(folder.iterdir()):
            refuse_links(path)


def open_own_file(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file for writing in place unless it is a link or also has a name elsewhere."""
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), mode)
    status = os.fstat(handle)
    if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise FileError(f"cannot write {path}: it is not a file of this folder alone; remove it")
    return handle


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary name beside `path`, then rename; both reach the disk before it ends.

    A link is an error. A caller whose path was named by the user passes `path.resolve()`.
    """
    check_writable(path)
    refuse_links(path)
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
