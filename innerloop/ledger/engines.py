"""Engines that run cells: processes on this machine, or a Dask cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, cast, runtime_checkable

from innerloop.errors import InputError
from innerloop.ledger.processes import EngineLostError, ProcessEngine
from innerloop.ledger.tasks import Task, run_task

DASK_TIMEOUT = 10.0
"""Seconds to wait for a Dask scheduler, and for its first worker."""
NO_WORKERS = "distributed.scheduler.no-workers-timeout"
"""Dask's own setting for how long to wait while a cluster has no workers."""
NO_WORKERS_SECONDS = 300.0
"""Our default for that setting. Dask's default is to wait without limit."""
MAX_WORKERS = 1024
"""Largest number of processes on this machine; a process starts only if there is a cell for it."""


@runtime_checkable
class Engine(Protocol):
    """Runs up to `slots` cells at once. A cell fails after `max_deaths` workers died with it."""

    max_deaths: int

    @property
    def slots(self) -> int: ...

    def submit(self, *work: Any) -> Future[str]: ...

    def is_worker_death(self, error: BaseException) -> bool:
        """Return whether an error means that the worker died, not that the cell's code failed."""
        ...

    def check_health(self, error: BaseException | None = None) -> str:
        """Raise an `EngineLostError` if no cell can finish any more; `error` is the latest error.

        A text that is not empty is a message for the user.
        """
        ...

    def close(self) -> None: ...


class DaskEngine:
    """Runs cells on the workers of a Dask cluster.

    If a worker dies, Dask's scheduler runs its cells again several times before it reports a death.
    It may report a cell that was only waiting on that worker, so every cell has a second try.
    """

    max_deaths = 2

    def __init__(self, address: str, task: Task = "cell") -> None:
        self.task = task
        try:
            import dask
            from distributed import Client
        except ModuleNotFoundError:
            raise InputError(
                "a Dask cluster needs the extra `dask`: pip install 'innerloop[dask]'"
            ) from None
        self._address = address
        limit = dask.config.get(NO_WORKERS, None)  # pyright: ignore[reportPrivateImportUsage]
        self._patience = parse_seconds(limit) if limit is not None else NO_WORKERS_SECONDS
        self._empty_since: float | None = None
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
        # Dask logs dozens of lines with tracebacks for a lost worker; we report one line instead.
        self._silenced = [logger for logger in list_loggers() if not logger.disabled]
        for logger in self._silenced:
            logger.disabled = True

    @property
    def slots(self) -> int:
        return max(1, self._count_cores())

    def _count_cores(self) -> int:
        gone = f"the Dask scheduler at {self._address!r} is gone"
        try:
            if self._client.status == "running":
                return sum(cast(dict[str, int], self._client.ncores()).values())
        except (OSError, TimeoutError, RuntimeError, AttributeError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise EngineLostError(f"{gone} ({reason:.200})") from None
        raise EngineLostError(gone)

    def submit(self, *work: Any) -> Future[str]:
        return self._executor.submit(run_task, self.task, *work)

    def is_worker_death(self, error: BaseException) -> bool:
        from distributed.scheduler import KilledWorker

        return isinstance(error, KilledWorker)

    def check_health(self, error: BaseException | None = None) -> str:
        from distributed.scheduler import NoWorkerError

        if isinstance(error, NoWorkerError):  # the scheduler applied the same limit first
            raise EngineLostError(f"the Dask cluster at {self._address!r} has no workers left")
        if self._count_cores():
            self._empty_since = None
            return ""
        now = time.monotonic()
        if self._empty_since is None:
            self._empty_since = now
            return (
                f"the Dask cluster at {self._address!r} has no workers left: waiting "
                f"{self._patience:g} s for some (Dask's setting {NO_WORKERS})"
            )
        if now - self._empty_since > self._patience:
            raise EngineLostError(
                f"the Dask cluster at {self._address!r} has had no workers for "
                f"{self._patience:g} s (Dask's setting {NO_WORKERS})"
            )
        return ""

    def close(self) -> None:
        is_connected = self._client.status == "running"
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # the scheduler may be gone
            self._executor.shutdown(wait=False)
            self._client.close(timeout=DASK_TIMEOUT)
        for logger in self._silenced if is_connected else ():  # a lost client goes on logging
            logger.disabled = False


def list_loggers() -> list[logging.Logger]:
    """List the loggers of Dask, tornado and asyncio; each may have handlers of its own."""
    names = ("distributed", "tornado", "asyncio")
    return [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.partition(".")[0] in names
    ]


def parse_seconds(limit: Any) -> float:
    """Parse a duration of Dask's configuration: a number of seconds, or text such as `5m`."""
    from dask.utils import parse_timedelta

    try:
        return float(parse_timedelta(limit))
    except (ValueError, TypeError, KeyError):
        raise InputError(
            f"Dask's setting {NO_WORKERS} must be a duration such as 60s, got {limit!r}"
        ) from None


def parse_engine(words: str, workers: int | None, task: Task = "cell") -> Callable[[], Engine]:
    """Return a function that starts the engine named `local` or `dask:ADDRESS`."""
    kind, _, address = words.partition(":")
    if kind == "dask" and address:
        if workers is not None:
            raise InputError("--workers is for --engine local: a Dask cluster has its own workers")
        return lambda: DaskEngine(address, task)
    if words != "local":
        raise InputError(f"engine must be local or dask:ADDRESS, got {words!r}")
    count = (os.cpu_count() or 1) if workers is None else workers
    if not 1 <= count <= MAX_WORKERS:
        raise InputError(f"workers must be at least 1 and at most {MAX_WORKERS}, got {count}")
    return lambda: ProcessEngine(count, task)
