"""Run a command in a process that is forked from that of the tests, to save the imports.

If the command starts a fork server, it starts a new one, like a command from a shell.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from multiprocessing import forkserver, process
from pathlib import Path
from typing import Any

from innerloop.ledger import processes


class ForkedCommand:
    """A running command line, whose output and errors are written to two files of a folder."""

    def __init__(self, folder: Path, prepare: Callable[[], None], *words: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = folder / "out", folder / "err"
        self._process = multiprocessing.get_context("fork").Process(
            target=run_command, args=(self._files, prepare, words)
        )
        with warnings.catch_warnings():
            # Newer Pythons warn where other threads run: here those only wait for messages.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """Wait for the end, and return output and errors."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it does not end"
        out, err = (path.read_text("utf-8") for path in self._files)
        return out, err


def run_command(
    files: tuple[Path, Path], prepare: Callable[[], None], words: tuple[str, ...]
) -> None:
    """Run the command line in a forked process, as if it had been started from a shell."""
    for number, name, path in zip((1, 2), ("stdout", "stderr"), files, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    forget_fork_server()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    prepare()
    from innerloop.cli import main

    sys.argv = ["innerloop", *words]
    main()


def forget_fork_server() -> None:
    """Forget the fork server of the parent and its folder: the next worker starts another."""
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None
    current: Any = process.current_process()
    current._config.pop("tempdir", None)
    processes.mark_folder.cache_clear()
