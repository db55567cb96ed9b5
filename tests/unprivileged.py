"""Act as a user without the rights of root, for whom permissions of files do not matter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534
"""The id of the user `nobody`, who owns no file."""
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@contextmanager
def act_as_nobody() -> Iterator[None]:
    """Run a block as the user `nobody` if this process is root's, and as the same user if not.

    Both the effective and the real user change, which is what `os.access` looks at. The saved user
    stays root, so that the process gets its rights back.
    """
    if not IS_ROOT:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, 0)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


@contextmanager
def make_open_folder() -> Iterator[Path]:
    """Make a folder that the user `nobody` reaches: pytest's own are open to their owner only."""
    with tempfile.TemporaryDirectory() as name:
        give_to_nobody(Path(name))
        yield Path(name)


def give_to_nobody(folder: Path) -> None:
    """Make the user `nobody` the owner of a folder and of everything below it."""
    for path in (folder, *folder.rglob("*")) if IS_ROOT else ():
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
