"""Engines that are lost: a scheduler, all workers, the fork server, or the whole group, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from innerloop.ledger.processes import MARKER, remove_stale_folders

HERE = Path(__file__).parent


class Place:
    """A folder for results, notes of the toys and temporary files, and commands that use it."""

    def __init__(self, folder: Path) -> None:
        self.notes, self.temporary, self.results = (
            folder / name for name in ("notes", "temporary", "results")
        )
        for each in (self.notes, self.temporary):
            each.mkdir()
        self.environment = {
            **{**os.environ, "TOYS": str(self.notes), "OMP_NUM_THREADS": "1"},
            **{"PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}", "TMPDIR": str(self.temporary)},
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def check(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        command = [str(HERE / "toy_command.py"), "check", *words, "--json"]
        return self.start(*command, "--results", str(self.results), **environment)

    def count_cells(self) -> int:
        return sum(1 for _ in self.results.rglob("*.json"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for process in place.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(condition: Callable[[], Any], patience: float = 120.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def is_asleep(place: Place) -> bool:
    pids = place.notes / "pids"
    return pids.exists() and bool(pids.read_text().strip())


SCHEDULER = """
import asyncio, sys
from distributed import Scheduler
async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=None) as s:
        print(s.address, flush=True)
        await s.finished()
asyncio.run(main())
"""
WORKER = """
import asyncio, sys
from distributed import Worker
async def main():
    async with Worker(sys.argv[1], nthreads=1, dashboard=False) as w:
        await w.finished()
asyncio.run(main())
"""


@pytest.fixture
def cluster(place: Place) -> tuple[str, subprocess.Popen[str], subprocess.Popen[str]]:
    """The address of a Dask scheduler, its process, and that of its one worker."""
    scheduler = place.start("-c", SCHEDULER)
    assert scheduler.stdout
    address = scheduler.stdout.readline().strip()
    return address, scheduler, place.start("-c", WORKER, address)


IDS = ["toy.one", "toy.two", "slow.sleeps"]


@pytest.mark.slow
def test_a_scheduler_that_is_killed(place: Place, cluster: Any) -> None:
    address, scheduler, _ = cluster
    process = place.check(*IDS, "--engine", f"dask:{address}")
    wait_until(lambda: is_asleep(place) or process.poll() is not None)
    finished = place.count_cells()
    scheduler.kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    (line,) = err.splitlines()
    assert f"the Dask scheduler at '{address}' is gone" in line
    assert "what is finished is stored, the same command goes on" in line
    verdicts = [outcome["verdict"] for outcome in json.loads(out)]
    assert verdicts.count("holds") == finished == place.count_cells() == 2
    assert verdicts.count("unavailable") == 1


@pytest.mark.slow
def test_a_cluster_without_workers_is_waited_for_within_a_limit(place: Place, cluster: Any) -> None:
    address, _, worker = cluster
    limit = {"DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "1s"}
    process = place.check(*IDS, "--engine", f"dask:{address}", **limit)
    wait_until(lambda: is_asleep(place) or process.poll() is not None)
    os.killpg(worker.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    first, last = err.splitlines()
    assert "has no workers left: waiting 1 s for some" in first
    assert "has had no workers for 1 s" in last
    assert "distributed.scheduler.no-workers-timeout" in last
    assert [outcome["verdict"] for outcome in json.loads(out)].count("holds") == 2


def find_fork_server(process: subprocess.Popen[str]) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(process.pid).children()
        if "forkserver" in " ".join(child.cmdline())
    )


@pytest.mark.slow
def test_a_fork_server_that_is_killed_costs_nothing(place: Place) -> None:
    """A worker goes on without it, and the next one has a new one."""
    process = place.check("toy.one", "toy.two", "bad.kills", "--workers", "1")
    wait_until(lambda: place.count_cells() or process.poll() is not None)
    find_fork_server(process).kill()
    out, err = process.communicate(timeout=120)
    verdicts = {outcome["id"]: outcome["verdict"] for outcome in json.loads(out)}
    assert verdicts == {"toy.one": "holds", "toy.two": "holds", "bad.kills": "broken"}
    assert process.returncode == 1, "a check that kills its workers is broken"
    assert "Traceback" not in err
    assert "Aborted" not in err


@pytest.mark.slow
def test_what_a_killed_group_leaves_the_next_run_removes(place: Place) -> None:
    foreign = place.temporary / "pymp-foreign"
    foreign.mkdir()
    before = set(os.listdir("/dev/shm"))
    process = place.check("slow.sleeps", "--workers", "2")
    wait_until(lambda: is_asleep(place) or process.poll() is not None)
    semaphores = {name for name in set(os.listdir("/dev/shm")) - before if is_ours(name, process)}
    living = list_folders(place)
    assert len(living) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(place.temporary))
        remove_stale_folders()
        assert list_folders(place) == living, "its run still lives"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not semaphores
        assert list_folders(place) == living, "a kill leaves the folder"
        wait_until(lambda: remove_stale_folders() or not list_folders(place), 10)
    assert foreign.exists(), "it is not ours"


def is_ours(name: str, process: subprocess.Popen[str]) -> bool:
    """Whether a semaphore that is new belongs to a process, and not to another test's."""
    inode = os.stat(f"/dev/shm/{name}").st_ino
    return f" {inode} " in Path(f"/proc/{process.pid}/maps").read_text()


def list_folders(place: Place) -> list[Path]:
    return [path.parent for path in place.temporary.glob(f"pymp-*/{MARKER}")]
