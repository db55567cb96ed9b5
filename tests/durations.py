"""Which tests are slow: those that `durations.json` says took long when last measured.

`make durations` measures all tests and writes the file. What counts are a test's CPU seconds, those
of processes that it waits for too, and those of shared fixtures that it uses, whoever made them.
Only tests of at least `SLOW` seconds are listed; one that is not, such as a new one, is fast.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
SLOW = 0.3
"""CPU seconds from which a test is left out of `make check`."""
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
    """Mark the tests that took long."""
    slow = json.loads(FILE.read_bytes())
    for item in items:
        if slow.get(item.nodeid, 0.0) >= SLOW:
            item.add_marker(pytest.mark.slow)


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
    """Write the slow ones of all that ran, and keep what is known of the others."""
    if not session.config.getoption("record_durations") or hasattr(session.config, "workerinput"):
        return
    known = {**json.loads(FILE.read_bytes()), **_found}
    slow = {name: round(seconds, 1) for name, seconds in sorted(known.items()) if seconds >= SLOW}
    FILE.write_text(json.dumps(slow, indent=0, ensure_ascii=False) + "\n", "utf-8")
