"""Run cells in processes on this machine; each process has its own pipe to the parent.

If a worker dies, only its own cell is affected, and the parent knows which cell that was. Workers
end when their parent ends, even if it is killed: each holds one end of a pipe whose other end only
the parent has. Pipes have no names in the file system, so a kill leaves no files of them. It does
leave the folder of the fork server, which the next run removes.
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
"""The file in a fork server's folder on which its owner holds a lock while it runs."""
STARTS = 3
"""Number of attempts to start a worker. An attempt also replaces a fork server that was killed."""


class EngineLostError(InputError):
    """The engine cannot run any more cells; the results of finished cells are stored."""


class WorkerDeathError(Exception):
    """A worker ended before it returned the result of its cell."""


class ProcessEngine:
    """Runs cells in processes on this machine."""

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
            outcome = worker.run((self.task, *work))  # a worker that dies is not reused
            self._idle.append(worker)
            return outcome

        return self._threads.submit(run)

    def is_worker_death(self, error: BaseException) -> bool:
        return isinstance(error, WorkerDeathError)

    def check_health(self, error: BaseException | None = None) -> str:
        return ""  # dead workers and a dead fork server are replaced

    def close(self) -> None:
        """End all workers, including busy ones."""
        self._parent_end.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.close()

    def _take_worker(self) -> Worker:
        """Return an idle worker that is alive, or start a new one."""
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
    """A process that runs one cell after another, with a pipe to it."""

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
            theirs.close()  # otherwise the parent would not notice that the worker ended

    def is_alive(self) -> bool:
        """Return whether an idle worker is alive: the pipe of a dead one is closed."""
        with contextlib.suppress(OSError):
            if not self._pipe.poll(0):
                return True
        self.close()
        return False

    def run(self, work: tuple[Any, ...]) -> str:
        """Run a cell in the process, and wait for its result."""
        try:
            self._pipe.send_bytes(json.dumps(work).encode())
            return self._pipe.recv_bytes().decode()
        except (EOFError, OSError):
            self.close()
            raise WorkerDeathError("the worker ended without an answer") from None

    def close(self) -> None:
        """Close the pipe, which ends an idle worker."""
        if not self.closed:
            self.closed = True
            self._pipe.close()
            self.process.join()


def serve(orders: Connection, parent: Connection) -> None:
    """Run cells as they arrive, until the parent closes the pipe."""
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
    """Mark the folder of our fork server with a file that is locked until this process ends.

    The file is locked before it is renamed to `MARKER`, so other processes never see it unlocked.
    """
    import fcntl

    folder = Path(multiprocessing.util.get_temp_dir())
    unnamed = folder / f"{MARKER}.new"
    mark = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)  # closed when the process ends
    fcntl.flock(mark, fcntl.LOCK_EX)
    unnamed.rename(folder / MARKER)
    return mark


def remove_stale_folders() -> None:
    """Remove the folders that the fork servers of killed runs left behind.

    A folder of innerloop contains the file `MARKER`; while its run is alive, the file is locked.
    """
    import fcntl

    for marker in Path(tempfile.gettempdir()).glob(f"pymp-*/{MARKER}"):
        with contextlib.suppress(OSError), marker.open("rb+") as mark:  # locked, or another user's
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(marker.parent, ignore_errors=True)
