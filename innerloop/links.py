"""Open files and folders without following links.

Folders of runs, cells and reports may come from other people. A link inside such a folder could
point anywhere. Every file is therefore opened one name of its path at a time, and a link is an
error. Links in the part of a path that the user named are replaced first (`resolve_links`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from innerloop.errors import FileError

HAS_HANDLES = {os.open, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd
"""Whether names can be relative to an open folder. Otherwise, links are searched for beforehand."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
PLAIN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""Flags with which opening a device or a pipe neither blocks nor has an effect."""
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0)
_LINK_ERRORS = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}
"""The error numbers of operating systems for a link that they do not follow."""


def resolve_links(path: Path) -> Path:
    """Replace the links in a path that the user named; a path without links stays as it is."""
    try:
        real = os.path.realpath(path)
        return path if real == os.path.abspath(path) else Path(real)
    except (OSError, ValueError):  # no current folder, or a zero byte: opening reports it
        return path


def refuse_links(path: Path) -> Path:
    """Return a path, or raise an error if it is a link."""
    if path.is_symlink():
        raise _link_error(path)
    return path


def refuse_links_inside(folder: Path) -> None:
    """Raise an error if an entry of a folder is a link."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(folder.iterdir()):
            refuse_links(path)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parent folders; a link is an error."""
    if HAS_HANDLES:
        os.close(_open_folder(folder, make=True))
    else:
        for part in (*reversed(folder.parents), folder):
            refuse_links(part)
        folder.mkdir(parents=True, exist_ok=True)


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file; raise an error if its path contains a link or it is not a regular file."""
    path = Path(path)
    with open_parent(path) as (place, folder):
        try:
            handle = os.open(place / path.name, flags | PLAIN | NO_LINK, mode, dir_fd=folder)
        except OSError as error:
            _refuse_link(path, error, place / path.name, folder)
            raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(f"cannot open {path}: it is not a file")
    return handle


def open_own_file(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file for writing in place, like `open_file`; a file with a second name is an error."""
    handle = open_file(path, flags, mode)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise FileError(
            f"cannot write {path}: it is a hard link to a file that has another name; remove it"
        )
    return handle


def read_file(path: Path, limit: int = -1) -> bytes:
    """Read a file, or its first `limit` bytes; a link in its path is an error."""
    with open(path, "rb", opener=open_file) as file:
        return file.read(limit)


def remove_file(path: Path) -> None:
    """Remove a file if it exists; a link among the folders of its path is an error."""
    with suppress(FileNotFoundError), open_parent(path) as (place, folder):
        os.unlink(place / path.name, dir_fd=folder)


@contextmanager
def open_parent(path: Path) -> Iterator[tuple[Path, int | None]]:
    """Yield the name of a file relative to its folder, and the handle of this open folder."""
    if not HAS_HANDLES:
        for part in (*reversed(path.parents), path):
            refuse_links(part)
        yield path.parent, None
        return
    handle = _open_folder(path.parent)
    try:
        yield Path(), handle
    finally:
        os.close(handle)


def _open_folder(folder: Path, *, make: bool = False) -> int:
    """Open a folder one name at a time; a link is an error."""
    handle = os.open(folder.anchor or ".", _FOLDER)
    here = Path(folder.anchor)
    try:
        for name in folder.parts[1:] if folder.anchor else folder.parts:
            here /= name
            inner = _open_inner_folder(here, handle, make)
            os.close(handle)
            handle = inner
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_inner_folder(path: Path, folder: int, make: bool) -> int:
    """Open the folder `path`, whose name is relative to the handle of an open folder."""
    try:
        return os.open(path.name, _FOLDER | NO_LINK, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=folder)
        return _open_inner_folder(path, folder, make=False)
    except OSError as error:
        _refuse_link(path, error, Path(path.name), folder)
        raise


def _refuse_link(path: Path, error: OSError, name: Path, folder: int | None) -> None:
    """Raise an error that names the link if opening a name failed because it is a link."""
    if error.errno in _LINK_ERRORS:
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise _link_error(path) from None


def _link_error(path: Path) -> FileError:
    return FileError(
        f"{path} is a link, expected a file or a folder of its own: links inside a folder of "
        "results are not followed; replace the link by what it points to"
    )
