"""Which tests are slow: those that `durations.json` says took long when last measured.

`make durations` measures all tests, or those of TESTS, and writes the file. What counts are the CPU
seconds of a test and of the processes that it starts, also of those that live on. A fixture that
several tests share is written down once, as `file::name (fixture)`, and each of them is as slow as
itself and its fixtures together. Tests of at least `LISTED` seconds are listed, those of at least
`SLOW` are slow; one that is not listed, such as a new one, is fast. Files that take longest run
first: no worker is left with one at the end.
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
"""CPU seconds from which a test is left out of `make check`."""
LISTED = 0.1
"""CPU seconds from which a test is written down: by those below `SLOW`, that can be chosen anew."""
_fixtures: dict[str, float] = {}
"""CPU seconds of the shared fixtures that were set up since the last report of a test."""
_found: dict[str, float] = {}
"""CPU seconds of each test, where they are recorded: in the process that starts the workers."""


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
    """Replace what is known of the tests that ran; leave out the shortest, sort by name.

    Where `whole` files ran, what is known of their other tests is about tests that are gone.
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
    """Send the CPU seconds of a test with the report of its end, those of new fixtures apart."""
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
    """Write the seconds of the tests that ran, and keep what is known of the others."""
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
