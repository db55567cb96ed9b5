"""Measure the durations of tests, and mark slow tests by the durations in `durations.json`.

`make durations` measures all tests, or those of TESTS, and writes the file. A duration is the CPU
time of a test and of the processes that it starts, also of processes that are still running. A
fixture that several tests share is recorded once, as `file::name (fixture)`. The duration of a test
is the sum of its own and those of its fixtures. Tests of at least `LISTED` seconds are recorded,
and
tests of at least `SLOW` seconds are slow. A test that is not recorded, such as a new test, is fast.
The files with the longest durations run first, so that no worker runs a long file at the end.
"""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
SLOW = 0.2
"""The least CPU seconds of tests that `make check` skips."""
LISTED = 0.1
"""The least CPU seconds of tests that are recorded, below `SLOW` so that this can change."""
_fixtures: dict[str, float] = {}
"""CPU seconds of the shared fixtures that were set up since the last report of a test."""
_found: dict[str, float] = {}
"""CPU seconds of each test, in the process that starts the workers."""


def read_cpu() -> float:
    """Return the CPU seconds of this process, of its children, and of theirs."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + read_living(os.getpid())


def read_living(pid: int) -> float:
    """Return the CPU seconds of the descendants of a process that still run; 0 without /proc."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                # After the name, in parentheses, are 11 fields and then user and system time, its
                # own and that of the children that it waited for.
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                seconds += read_living(int(child))
        except OSError:  # it has just ended
            continue
    return seconds


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures."""
    parser.addoption("--record-durations", action="store_true", help=f"Write {FILE.name} anew.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that took long, and put the files that took longest first."""
    known = json.loads(FILE.read_bytes())
    for item in items:
        if sum_with_fixtures(known, item.nodeid, getattr(item, "fixturenames", ())) >= SLOW:
            item.add_marker(pytest.mark.slow)
    totals = sum_by_file(known)
    items.sort(key=lambda item: -totals[find_file(item.nodeid)])


def find_file(test: str) -> str:
    """Return the file of a test's id."""
    return test.partition("::")[0]


def name_fixture(place: str, name: str) -> str:
    """Name a fixture of a file of tests, or of the conftest in a folder."""
    return f"{place}::{name} (fixture)"


def sum_with_fixtures(known: Mapping[str, float], test: str, fixtures: Iterable[str]) -> float:
    """Add up the seconds of a test and of the shared fixtures that it uses."""
    file = find_file(test)
    places = (file, *(parent.as_posix() for parent in Path(file).parents))
    shared = (known.get(name_fixture(place, name), 0.0) for name in fixtures for place in places)
    return known.get(test, 0.0) + sum(shared)


def sum_by_file(known: Mapping[str, float]) -> defaultdict[str, float]:
    """Add up the seconds of the tests of each file, and of its fixtures."""
    totals = defaultdict[str, float](float)
    for test, seconds in known.items():
        totals[find_file(test)] += seconds
    return totals


def merge_durations(
    known: Mapping[str, float], found: Mapping[str, float], whole: bool
) -> dict[str, float]:
    """Replace the durations of tests that ran; omit the shortest ones, and sort by name.

    If `whole` files ran, the other recorded tests of these files no longer exist and are removed.
    """
    files = {file for file in map(find_file, found) if file.endswith(".py")} if whole else set()
    kept = {test: seconds for test, seconds in known.items() if find_file(test) not in files}
    merged = sorted({**kept, **found}.items())
    return {test: round(seconds, 2) for test, seconds in merged if seconds >= LISTED}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Measure the set-up of a fixture that several tests share."""
    if fixturedef.scope == "function" or not request.config.getoption("record_durations"):
        return (yield)
    start = read_cpu()
    try:
        return (yield)
    finally:
        name = name_fixture(fixturedef.baseid or ".", fixturedef.argname)
        _fixtures[name] = _fixtures.get(name, 0.0) + read_cpu() - start


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure a test from its set-up on."""
    item.stash[_started] = read_cpu() if item.config.getoption("record_durations") else 0.0
    return (yield)


_started = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """Add the CPU seconds of a test to its report, and separately those of new fixtures."""
    report = yield
    if call.when == "teardown" and item.config.getoption("record_durations"):
        own = read_cpu() - item.stash[_started] - sum(_fixtures.values())
        report.cpu_seconds = {**_fixtures, item.nodeid: own}
        _fixtures.clear()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the seconds of all workers; each sets up the fixtures of a session itself."""
    for name, seconds in getattr(report, "cpu_seconds", {}).items():
        _found[name] = max(_found.get(name, 0.0), seconds)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the durations of the tests that ran; the recorded durations of other tests stay."""
    config = session.config
    if not config.getoption("record_durations") or hasattr(config, "workerinput"):
        return
    selected = config.getoption("keyword") or config.getoption("markexpr")
    whole = not selected and not any("::" in word for word in config.args)
    known = {
        test: seconds
        for test, seconds in json.loads(FILE.read_bytes()).items()
        if (config.rootpath / find_file(test)).exists()
    }
    listed = merge_durations(known, _found, whole)
    FILE.write_text(json.dumps(listed, indent=0, ensure_ascii=False) + "\n", "utf-8")
