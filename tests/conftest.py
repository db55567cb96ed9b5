"""Every test runs with the shapes in the package's type annotations enforced."""

from __future__ import annotations

import json
import os
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
    from innerloop.claims.base import Claim
    from innerloop.claims.evidence import Evidence

jaxtyping.jaxtyped = strict.jaxtyped  # which the hook applies to every function
jaxtyping.install_import_hook("innerloop", "strict.check")
torch.set_num_threads(1)
# No deadlines: the machine is shared. Derandomised: a failure is a failure every time.
settings.register_profile("innerloop", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("innerloop")


SLOW_FIXTURES = {
    *("browser", "check_tiny", "cluster", "convergence", "fresh_environment", "ledger"),
    "undisturbed",
}
"""Fixtures that start processes, clusters or a browser, or measure for seconds."""
QUICK_CLAIMS = {
    *("ahn2023.distorted-view", "ahn2023.lemma-2", "ahn2023.lemma-9", "gatmiry2024.corollary-A.4"),
    *("gatmiry2024.lemma-4.2", "gatmiry2024.lemma-A.2", "gatmiry2024.lemma-A.3"),
    *("gatmiry2024.lemma-A.6", "gatmiry2024.lemma-A.9", "liu2025.corollary-D.1", "liu2025.eq-4.3"),
    *("liu2025.lemma-2", "liu2025.lemma-3", "liu2025.proposition-1", "liu2025.theorem-5.1"),
    *("liu2025.theorem-E.1", "qliu2025.definition-masks", "qliu2025.lemma-8", "qliu2025.theorem-7"),
    *("yang2025.fu.rates", "yang2025.he.gmm", "yang2025.lin.theorem-10"),
}
"""Claims of every source that `make check` covers too."""
SLOW_FILES = {
    "test_training",
    "test_identify",
    "test_mixture_of_regressions",
    "test_outside",
    "test_sparse_recovery",
}
SLOW_MEMBERS = {
    *("em", "gpt2", "lloyd", "mixture-of-regressions", "mixture-of-two-regressions"),
    *("network-gradient-descent", "packed-ucb-vi", "pca", "soft-lin-ucb", "spectral-clustering"),
    *("thompson-sampling", "ucb-vi"),
}
SLOW_WORDS = (
    "killed",
    "command_line",
    "random_sizes",
    "identify_takes",
    "free_run",
    "every_weight",
)
"""Files, members and words of test names, by `--durations`, that `make check` leaves out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests that carry no mark of their own: by fixture, file, member or name."""
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.slow)


def is_slow(item: pytest.Item) -> bool:
    """Whether a test takes long by what it uses or is called."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()  # pyright: ignore
    names = {value for value in values if isinstance(value, str)}
    fixtures = SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    return bool(
        (fixtures and not names & QUICK_CLAIMS)
        or item.path.stem in SLOW_FILES
        or names & SLOW_MEMBERS
        or any(word in item.name for word in SLOW_WORDS)
    )


class CommandResult(NamedTuple):
    """Exit code, output and errors of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Give every test the same draws and the same checks, whatever ran before."""
    torch.manual_seed(0)
    strict.next_test()


@pytest.fixture(autouse=True)
def own_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the results of every test out of those of the checkout."""
    monkeypatch.setenv("INNERLOOP_RESULTS", str(tmp_path / "results"))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all worker processes of one test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set the folder of the toys' notes: a fork server keeps the environment that it started in."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOYS", str(folder))
        yield folder


@pytest.fixture
def check_tiny(shared_folder: Path) -> Callable[[Claim], Evidence]:
    """Check a claim with its tiny settings, once in a test run: others read what that found."""

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
