"""Fixtures of the tests; every test checks the shapes in the package's type annotations."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jaxtyping
import pytest
import strict
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from innerloop.claims.base import Claim
    from innerloop.claims.evidence import Evidence

jaxtyping.jaxtyped = strict.jaxtyped  # which the hook applies to every function
jaxtyping.install_import_hook("innerloop", "strict.check")
torch.set_num_threads(1)
# Processes that tests start: threads that wait for each other's small pieces burn CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No deadlines: the machine is shared. Derandomised: a failure is a failure every time.
settings.register_profile("innerloop", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("innerloop")

pytest_plugins = ["durations"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, because they exist until the end."""
    gc.collect()
    gc.freeze()


class CommandResult(NamedTuple):
    """Exit code, output and errors of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Give every test the same random numbers and type checks, independent of earlier tests."""
    torch.manual_seed(0)
    strict.next_test()


@pytest.fixture(autouse=True)
def own_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use a separate folder of results for every test."""
    monkeypatch.setenv("INNERLOOP_RESULTS", str(tmp_path / "results"))


@pytest.fixture
def law_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute only the part of certificates that decides whether the law holds.

    Norms, unreached weights and the exact comparison have their own tests, and
    `test_transformer_file` certifies every construction with them.
    """
    apart = {"status": "none", "brief": "left out", "text": "left out: it has tests of its own"}
    compare = "innerloop.certification.certificate.compare_for_certificate"
    monkeypatch.setattr(compare, lambda *_: apart)
    monkeypatch.setattr("innerloop.certification.measuring.find_unreached", lambda *_: None)
    monkeypatch.setattr("innerloop.transformer.Transformer.operator_norm", lambda _: 0.0)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all worker processes of one test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set the folder for notes of `toys.py`, also for a fork server that is already running."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOYS", str(folder))
        yield folder


@pytest.fixture
def check_tiny(shared_folder: Path) -> Callable[[Claim], Evidence]:
    """Check a claim with its tiny settings once per test run; other tests use the stored result."""

    from innerloop.claims.evidence import Evidence
    from innerloop.files import write_atomically

    def check(claim: Claim) -> Evidence:
        path = shared_folder / f"{claim.id}.evidence.json"
        if path.exists():
            return Evidence.from_dict(json.loads(path.read_bytes()))
        evidence = claim.check(claim.tiny)
        write_atomically(path, json.dumps(evidence.as_dict()).encode())
        return evidence

    return check


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium without a window; skip the test if it is not installed and not required."""
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        reason = "no Chromium here: install Debian's package `chromium`"
        if os.environ.get("INNERLOOP_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """Run the command line in this process: `run("build", "newton", "--json")`."""

    def run(*words: str) -> CommandResult:
        from innerloop.cli import main

        monkeypatch.setattr(sys, "argv", ["innerloop", *words])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        assert isinstance(code, int), f"exit code {code!r}"
        return CommandResult(code, out, err)

    return run
