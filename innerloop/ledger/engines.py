"""Where cells run: processes of this machine, or a Dask cluster. Both are executors.

Each process is a pool of its own, so that one which dies takes no other's work with it and it is
known which cell it died of. Workers end with their parent, however that ends: each holds the end of
a pipe whose other end only the parent has.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Protocol, cast, runtime_checkable

from innerloop.errors import InputError
from innerloop.ledger.work import run_cell

DASK_TIMEOUT = 10.0
"""Seconds to wait for a Dask scheduler, and for its first worker."""


@runtime_checkable
class Engine(Protocol):
    """Takes cells. `slots` is how many can run at once; a cell is given up after `max_deaths`."""

    max_deaths: int

    @property
    def slots(self) -> int: ...

    def submit(self, *work: Any) -> Future[str]: ...

    def is_worker_death(self, error: BaseException) -> bool:
        """Whether an error means that the worker died, not that the cell's code broke."""
        ...

    def close(self) -> None: ...


class ProcessEngine:
    """Processes of this machine."""

    max_deaths = 3

    def __init__(self, workers: int) -> None:
        context = _choose_context()
        self._parent_end, self._worker_end = context.Pipe(duplex=False)[::-1]
        self._context = context
        self._pools: list[Executor | None] = [None] * workers
        self._last_futures: list[Future[str] | None] = [None] * workers

    @property
    def slots(self) -> int:
        return len(self._pools)

    def submit(self, *work: Any) -> Future[str]:
        lane = next(k for k, last in enumerate(self._last_futures) if last is None or last.done())
        for _ in range(2):
            pool = self._pools[lane] = self._pools[lane] or ProcessPoolExecutor(
                1,
                mp_context=self._context,
                initializer=exit_with_parent,
                initargs=(self._worker_end,),
            )
            try:
                future = self._last_futures[lane] = pool.submit(run_cell, *work)
                return future
            except BrokenExecutor:  # it died after its last cell: a new one takes its place
                self._pools[lane] = None
        raise BrokenExecutor("a worker cannot be started")

    def is_worker_death(self, error: BaseException) -> bool:
        return isinstance(error, BrokenExecutor)

    def close(self) -> None:
        """End all workers, also those that are busy."""
        self._parent_end.close()
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)


def _choose_context() -> BaseContext:
    """Choose how processes start: from a preloaded fork server if there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", run_cell.__module__])
    return context


def exit_with_parent(parent: Connection) -> None:
    """Make this process end when the parent closes its end of the pipe, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            parent.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class DaskEngine:
    """The workers of a Dask cluster, by the address of its scheduler.

    The scheduler itself runs the cells of a dead worker again, several times, before it reports a
    death, and may blame a cell that only waited there: so that one is tried once more.
    """

    max_deaths = 2

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ModuleNotFoundError:
            raise InputError(
                "a Dask cluster needs the extra `dask`: pip install 'innerloop[dask]'"
            ) from None
        try:
            self._client = Client(address, timeout=DASK_TIMEOUT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise InputError(
                f"no Dask scheduler answers at {address!r} ({reason}): "
                "start one with `dask scheduler` and give its address, as in dask:tcp://HOST:8786"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=DASK_TIMEOUT)
        except TimeoutError:
            self._client.close()
            raise InputError(
                f"the Dask scheduler at {address!r} has no workers: "
                "start some with `dask worker ADDRESS`"
            ) from None
        self._executor = self._client.get_executor(pure=False)

    @property
    def slots(self) -> int:
        return max(1, sum(cast(dict[str, int], self._client.ncores()).values()))

    def submit(self, *work: Any) -> Future[str]:
        return self._executor.submit(run_cell, *work)

    def is_worker_death(self, error: BaseException) -> bool:
        from distributed.scheduler import KilledWorker

        return isinstance(error, KilledWorker)

    def close(self) -> None:
        self._executor.shutdown(wait=False)
        self._client.close()


def parse_engine(words: str, workers: int | None) -> Callable[[], Engine]:
    """How to start the engine that `local` or `dask:ADDRESS` names. Nothing starts before."""
    kind, _, address = words.partition(":")
    if kind == "dask" and address:
        if workers is not None:
            raise InputError("--workers is for --engine local: a Dask cluster has its own workers")
        return lambda: DaskEngine(address)
    if words != "local":
        raise InputError(f"engine must be local or dask:ADDRESS, got {words!r}")
    count = (os.cpu_count() or 1) if workers is None else workers
    if count < 1:
        raise InputError(f"workers must be at least 1, got {count}")
    return lambda: ProcessEngine(count)
