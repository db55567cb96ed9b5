"""Cells in processes of this machine, each with a pipe of its own.

A worker that dies takes no other's work with it, and it is known which cell it died of. Workers end
with their parent, however that ends: each holds the end of a pipe whose other end only the parent
has. Pipes have no names, so that nothing of them is left behind by a kill; a fork server's folder
is, and the next run removes it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from innerloop.errors import InputError
from innerloop.jsonfiles import parse_json
from innerloop.ledger.tasks import Task, run_task

MARKER = "innerloop.lock"
"""The file in a fork server's folder that its owner holds a lock on while it lives."""
STARTS = 3
"""Tries to start a worker: a fork server that was killed is replaced at the next one."""


class EngineLostError(InputError):
    """An engine that can run no more cells; what is finished stays."""


class WorkerDeathError(Exception):
    """A worker that ended before it said what its cell found."""


class ProcessEngine:
    """Processes of this machine."""

    max_deaths = 3

    def __init__(self, workers: int, task: Task = "cell") -> None:
        self.slots, self.task = workers, task
        self._idle: list[Worker] = []
        self._all: list[Worker] = []
        if "forkserver" in multiprocessing.get_all_start_methods():
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload(["torch", run_task.__module__])
            remove_stale_folders()
            mark_folder()
        else:
            self._context = multiprocessing.get_context("spawn")
        self._worker_end, self._parent_end = self._context.Pipe(duplex=False)
        self._threads = ThreadPoolExecutor(workers)

    def submit(self, *work: Any) -> Future[str]:
        worker = self._take_worker()

        def run() -> str:
            outcome = worker.run((self.task, *work))  # one that dies does not come back
            self._idle.append(worker)
            return outcome

        return self._threads.submit(run)

    def is_worker_death(self, error: BaseException) -> bool:
        return isinstance(error, WorkerDeathError)

    def check_health(self, error: BaseException | None = None) -> str:
        return ""  # a worker, and what starts it, is replaced

    def close(self) -> None:
        """End all workers, also those that are busy."""
        self._parent_end.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.close()

    def _take_worker(self) -> Worker:
        """Take a worker that waits, and lives, or start one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive():
                return worker
        reason = ""
        for _ in range(STARTS):
            try:
                worker = Worker(self._context, self._worker_end)
            except (EOFError, OSError) as error:
                reason = str(error) or "the process that starts them was killed"
                continue
            self._all = [each for each in self._all if not each.closed] + [worker]
            return worker
        raise EngineLostError(f"a worker cannot be started: {reason}")


class Worker:
    """A process that runs one cell after another, and the pipe to it."""

    def __init__(self, context: Any, parent: Connection) -> None:
        self._pipe, theirs = context.Pipe()
        self.closed = False
        try:
            self.process = context.Process(target=serve, args=(theirs, parent))
            self.process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()  # else the end of the worker would not be noticed

    def is_alive(self) -> bool:
        """Tell whether a worker that has nothing to say is still there: its pipe has no end."""
        with contextlib.suppress(OSError):
            if not self._pipe.poll(0):
                return True
        self.close()
        return False

    def run(self, work: tuple[Any, ...]) -> str:
        """Run a cell there and wait for what it found."""
        try:
            self._pipe.send_bytes(json.dumps(work).encode())
            return self._pipe.recv_bytes().decode()
        except (EOFError, OSError):
            self.close()
            raise WorkerDeathError("the worker ended without an answer") from None

    def close(self) -> None:
        """Close the pipe, which ends a worker that waits."""
        if not self.closed:
            self.closed = True
            self._pipe.close()
            self.process.join()


def serve(orders: Connection, parent: Connection) -> None:
    """Run cells as they come, until nobody can send any more."""
    exit_with_parent(parent)
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.send_bytes(run_task(*parse_json(orders.recv_bytes())).encode())


def exit_with_parent(parent: Connection) -> None:
    """Make this process end when the parent closes its end of the pipe, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            parent.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@cache
def mark_folder() -> int:
    """Mark the folder of this process's fork server as ours, by a lock that dies with the process.

    The mark has its lock before it has its name, so nobody sees it without.
    """
    import fcntl

    folder = Path(multiprocessing.util.get_temp_dir())
    unnamed = folder / f"{MARKER}.new"
    mark = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)  # never closed: the process's end does
    fcntl.flock(mark, fcntl.LOCK_EX)
    unnamed.rename(folder / MARKER)
    return mark


def remove_stale_folders() -> None:
    """Remove the folders of fork servers that killed runs left, and no others.

    Ours have a mark, and that of a run which lives is locked.
    """
    import fcntl

    for marker in Path(tempfile.gettempdir()).glob(f"pymp-*/{MARKER}"):
        with contextlib.suppress(OSError), marker.open("rb+") as mark:  # locked, or somebody else's
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(marker.parent, ignore_errors=True)
