"""Which tests are slow: those that `durations.json` says took long when last measured.

`make durations` measures all tests, or those of TESTS, and writes the file. What counts are the CPU
seconds of a test, those of processes that it waits for too, and those of shared fixtures that it
uses, whoever made them. Tests of at least `LISTED` seconds are listed, those of at least `SLOW` are
slow; one that is not listed, such as a new one, is fast. Files that take longest run first: no
worker is left with one at the end.
"""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
SLOW = 0.2
"""CPU seconds from which a test is left out of `make check`."""
LISTED = 0.1
"""CPU seconds from which a test is written down: by those below `SLOW`, that can be chosen anew."""
_shared: dict[str, float] = {}
"""CPU seconds that each shared fixture took to set up."""
_found: dict[str, float] = {}
"""CPU seconds of each test, where they are recorded: in the process that starts the workers."""


def read_cpu() -> float:
    """Return the CPU seconds of this process and of the children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures."""
    parser.addoption("--record-durations", action="store_true", help=f"Write {FILE.name} anew.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that took long, and put the files that took longest first."""
    known = json.loads(FILE.read_bytes())
    for item in items:
        if known.get(item.nodeid, 0.0) >= SLOW:
            item.add_marker(pytest.mark.slow)
    totals = sum_by_file(known)
    items.sort(key=lambda item: -totals[find_file(item.nodeid)])


def find_file(test: str) -> str:
    """Return the file of a test's id."""
    return test.partition("::")[0]


def sum_by_file(known: Mapping[str, float]) -> defaultdict[str, float]:
    """Add up the seconds of the tests of each file."""
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
    files = {find_file(test) for test in found} if whole else set()
    kept = {test: seconds for test, seconds in known.items() if find_file(test) not in files}
    merged = sorted({**kept, **found}.items())
    return {test: round(seconds, 2) for test, seconds in merged if seconds >= LISTED}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Note what a fixture took that several tests share."""
    start = read_cpu()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _shared[fixturedef.argname] = read_cpu() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Charge a test for the shared fixtures that an earlier one has set up."""
    names = getattr(item, "fixturenames", ())
    earlier = sum(seconds for name, seconds in _shared.items() if name in names)
    item.stash[_started] = read_cpu() - earlier
    return (yield)


_started = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Send the CPU seconds so far with each report."""
    report = yield
    report.cpu_seconds = read_cpu() - item.stash.get(_started, read_cpu())
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the seconds of all workers."""
    _found[report.nodeid] = max(_found.get(report.nodeid, 0.0), getattr(report, "cpu_seconds", 0.0))


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
