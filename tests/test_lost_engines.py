"""Lost engines: checks continue if a scheduler, a worker or the fork server is killed."""

from __future__ import annotations

import contextlib
import json
import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.synchronize import SemLock
from pathlib import Path
from typing import Any

import psutil
import pytest
import toys

from innerloop.claims import loading
from innerloop.errors import InputError
from innerloop.ledger import checking, engines, processes
from innerloop.ledger import run as running
from innerloop.ledger.processes import (
    MARKER,
    EngineLostError,
    ProcessEngine,
    remove_stale_folders,
)

HERE = Path(__file__).parent


CLUSTER = """
import asyncio, os, sys
import innerloop.ledger.work, toys, torch
from distributed import Worker

async def work(address):
    async with Worker(address, nthreads=2, dashboard=False) as worker:
        await worker.finished()

for address in sys.stdin:
    if not (pid := os.fork()):
        asyncio.run(work(address.strip()))
    print(pid, flush=True)
"""
"""Starts a worker for each address that it reads, and imports only once."""
SCHEDULER = """
import asyncio
from distributed import Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

asyncio.run(main())
"""


def start_script(code: str) -> subprocess.Popen[str]:
    """Start a script that talks through pipes, in a session of its own."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    null = subprocess.DEVNULL
    options = {"text": True, "start_new_session": True, "stderr": null}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, **options)


class Cluster:
    """A Dask scheduler in a process, and another that starts workers."""

    def __init__(self) -> None:
        self.scheduler, self.starter = start_script(SCHEDULER), start_script(CLUSTER)
        assert self.scheduler.stdout
        self.address = self.scheduler.stdout.readline().strip()

    def start_worker(self) -> int:
        assert self.starter.stdin
        assert self.starter.stdout
        self.starter.stdin.write(f"{self.address}\n")
        self.starter.stdin.flush()
        return int(self.starter.stdout.readline())

    def close(self) -> None:
        for process in (self.scheduler, self.starter):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def cluster(notes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent}")
    for module in (loading, checking, running):
        monkeypatch.setattr(module, "load_claims", lambda: toys.CLAIMS)
    for name in ("pids", "go"):
        (notes / name).unlink(missing_ok=True)
    cluster = Cluster()
    yield cluster
    cluster.close()


def count_cells(results: Path) -> int:
    return sum(1 for _ in results.rglob("*.json"))


def wait_until(condition: Callable[[], Any], patience: float = 120.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def test_check_continues_after_a_lost_cluster(
    run: Callable[..., Any],
    cluster: Cluster,
    notes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First all workers are killed, then the scheduler; what was finished is printed and kept."""
    import distributed  # before its settings change: importing it sets them
    from dask import config

    assert distributed

    address = cluster.address
    ids = ("toy.one", "toy.two", "slow.sleeps")

    def lose(kill: Callable[[], None], results: Path) -> Any:
        def wait_and_kill() -> None:
            wait_until(lambda: count_cells(results) == 2 and (notes / "pids").exists())
            kill()

        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(wait_and_kill)
            where = ("--engine", f"dask:{address}", "--results", str(results), "--json")
            found = run("check", *ids, *where)
            killed.result()
        verdicts = sorted(outcome["verdict"] for outcome in json.loads(found.out))
        assert verdicts == ["holds", "holds", "unavailable"]
        assert count_cells(results) == 2
        assert found.code == 2
        return found.err.splitlines()

    worker = cluster.start_worker()
    with config.set({"distributed.scheduler.no-workers-timeout": "1s"}):
        first, last = lose(lambda: os.kill(worker, signal.SIGKILL), tmp_path / "first")
    assert f"the Dask cluster at '{address}' has no workers left: waiting 1 s" in first
    assert f"the Dask cluster at '{address}' has had no workers for 1 s" in last
    assert "distributed.scheduler.no-workers-timeout" in last

    (notes / "pids").unlink()
    cluster.start_worker()
    (line,) = lose(cluster.scheduler.kill, tmp_path / "second")
    assert f"the Dask scheduler at '{address}' is gone" in line
    assert "finished results are stored; run the same command to continue" in line


def test_an_invalid_time_limit_is_an_error() -> None:
    assert engines.parse_seconds("5m") == 300
    assert engines.parse_seconds(2) == 2
    with pytest.raises(InputError, match="must be a duration such as 60s, got 'soon'"):
        engines.parse_seconds("soon")


WORK = ("toys", "toy.one", {"pause": 0.0}, 0)


def test_a_killed_fork_server_does_not_stop_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker goes on without it, the next one has a new one, and neither has a semaphore."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a named semaphore stays behind where a process is killed")

    monkeypatch.setattr(SemLock, "__init__", refuse)
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent}")
    engine = ProcessEngine(1)
    try:
        assert "found" in json.loads(engine.submit(*WORK).result())
        (worker,) = engine._all
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # pyright: ignore
        assert "found" in json.loads(engine.submit(*WORK).result())
        assert engine._all == [worker]
        os.kill(worker.process.pid, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(worker.process.pid))
        assert "found" in json.loads(engine.submit(*WORK).result())
        assert engine._all != [worker]
    finally:
        engine.close()


def test_a_worker_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ProcessEngine(10**3)
    monkeypatch.setattr(processes.Worker, "__init__", raise_end)
    with pytest.raises(EngineLostError, match="a worker cannot be started"):
        engine.submit(*WORK)
    engine.close()


def raise_end(*_: Any) -> None:
    raise EOFError


def test_the_next_run_removes_the_folder_of_a_killed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where it is ours, by its mark, and stale, by the lock that dies with its process."""
    foreign, ours = tmp_path / "pymp-foreign", tmp_path / "pymp-ours"
    for folder in (foreign, ours):
        folder.mkdir()
        (folder / "listener-1").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(multiprocessing.util, "get_temp_dir", lambda: str(ours))
    if not (pid := os.fork()):  # a process that has nothing to import
        processes.mark_folder.__wrapped__()
        time.sleep(600)
        os._exit(0)
    try:
        wait_until((ours / MARKER).exists)
        remove_stale_folders()
        assert (ours / "listener-1").exists(), "its run still lives"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    remove_stale_folders()
    assert not ours.exists()
    assert (foreign / "listener-1").exists(), "it is not ours"
