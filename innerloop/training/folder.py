"""The folder of a run: one training at a time; a killed training does not block later ones.

Lock     a file lock on `.lock`, which contains the process id and is never removed. The operating
         system releases the lock when the process ends for any reason; a lock file without a file
         lock would remain after a kill
Resume   the run continues from the checkpoint. Without a checkpoint it starts from the beginning
         with a message, so that a script can always pass `--resume`
"""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.files import remove_partial_files
from innerloop.links import make_folder, open_own_file, refuse_links_inside

CHECKPOINT, MODEL, LOCK = "checkpoint.safetensors", "model.safetensors", ".lock"
HISTORY = "history.csv"
SECONDS_TO_LOCK = 0.1
"""Seconds before a held lock is tried again, because another process may only be testing it."""
_BUSY = {errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}
"""Errors for a lock that another process holds; other errors mean that locks do not work here."""
_PLACE_OF_LOCK = 1 << 30
"""The byte that Windows locks, after the process id, which other processes must be able to read."""
_handles: set[int] = set()


@contextmanager
def open_folder(folder: Path, resume: bool, notice: Callable[[str], None]) -> Iterator[Path]:
    """Make the folder of a run and lock it in a `with` block; yield the path of its checkpoint.

    Raises `FileError` if the folder cannot be written, or if it contains a run and `resume` is not
    set.
    """
    try:
        make_folder(folder)
    except (FileExistsError, NotADirectoryError):
        raise FileError(f"cannot train into {folder}: it is not a folder") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot make {folder}: {error.strerror or error}") from None
    except ValueError as error:  # a zero byte in the name
        raise FileError(f"cannot make {str(folder)!r}: {error}") from None
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot train into {folder}: no permission to write into it")
    refuse_links_inside(folder)
    with _lock(folder, notice):
        _check_earlier_run(folder, resume, notice)
        remove_partial_files(folder)
        yield folder / CHECKPOINT


def _check_earlier_run(folder: Path, resume: bool, notice: Callable[[str], None]) -> None:
    begun, finished = ((folder / name).exists() for name in (CHECKPOINT, MODEL))
    if (begun or finished) and not resume:
        raise FileError(
            f"{folder} already contains a run: continue it with --resume, remove it, or train into "
            "another folder (-o)"
        )
    if finished and not begun:
        raise FileError(
            f"{folder} contains a finished model but no checkpoint to resume from: remove it, or "
            "train into another folder (-o)"
        )
    if resume and not begun:
        notice(f"there is no run to resume in {folder}: it starts from the beginning")


@contextmanager
def _lock(folder: Path, notice: Callable[[str], None]) -> Iterator[None]:
    """Lock a folder until the block or the process ends; report if locks are not supported."""
    path = folder / LOCK
    try:
        handle = open_own_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise FileError(f"cannot open {path}: {error.strerror or error}") from None
    _handles.add(handle)
    try:
        try:
            _lock_patiently(handle)
        except OSError as error:
            if error.errno in _BUSY:
                raise FileError(
                    f"another training is in progress in {folder}{_describe_holder(handle)}: wait "
                    "for it, or train into another folder (-o)"
                ) from None
            notice(
                f"{folder} cannot be locked ({error.strerror or error}): make sure that no other "
                "training uses it"
            )
            yield
            return
        with suppress(OSError):  # the id is only for display, so a full disk is not an error here
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                _apply_lock(handle, False)
    finally:
        if handle in _handles:
            _handles.remove(handle)
            os.close(handle)


def is_locked(folder: Path) -> bool:
    """Return whether a training is in progress in a folder; False if locks do not work here."""
    try:
        handle = open_own_file(folder / LOCK, os.O_RDWR)
    except (OSError, FileError):
        return False
    try:
        _apply_lock(handle, True)
        _apply_lock(handle, False)
    except OSError as error:
        return error.errno in _BUSY
    finally:
        os.close(handle)
    return False


def _lock_patiently(handle: int) -> None:
    try:
        _apply_lock(handle, True)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        time.sleep(SECONDS_TO_LOCK)
        _apply_lock(handle, True)


def _apply_lock(handle: int, hold: bool) -> None:
    """Take or release the lock on an open file; raise `OSError` at once if that fails."""
    module = _find_lock_module()
    if module is None:
        raise OSError(errno.ENOLCK, "this platform has no file locks")
    if module.__name__ == "fcntl":
        module.flock(handle, module.LOCK_EX | module.LOCK_NB if hold else module.LOCK_UN)
        return
    os.lseek(handle, _PLACE_OF_LOCK, os.SEEK_SET)
    module.locking(handle, module.LK_NBLCK if hold else module.LK_UNLCK, 1)
    os.lseek(handle, 0, os.SEEK_SET)


def _find_lock_module() -> Any:
    """Find the module of the platform's file locks: `fcntl`, `msvcrt` on Windows, or none."""
    for name in ("fcntl", "msvcrt"):
        with suppress(ImportError):
            return importlib.import_module(name)
    return None


def _describe_holder(handle: int) -> str:
    """Name the process that holds a lock, from the lock's file; empty if the file has no id."""
    with suppress(OSError):
        os.lseek(handle, 0, os.SEEK_SET)
        text = os.read(handle, 20)
        if text.isdigit():
            return f" (process {int(text)})"
    return ""


def _close_inherited() -> None:
    """Close the parent's locks in a forked child; otherwise the child would hold them too."""
    while _handles:
        with suppress(OSError):
            os.close(_handles.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
