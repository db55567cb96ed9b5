"""Every test runs with the shapes in the package's type annotations enforced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import jaxtyping
import pytest
import strict
import torch
from hypothesis import settings

jaxtyping.jaxtyped = strict.jaxtyped  # which the hook applies to every function
jaxtyping.install_import_hook("innerloop", "strict.check")
torch.set_num_threads(1)
# No deadlines: the machine is shared. Derandomised: a failure is a failure every time.
settings.register_profile("innerloop", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("innerloop")


class Ran(NamedTuple):
    """What a command line gave back."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """The same draws and the same checks whatever ran before."""
    torch.manual_seed(0)
    strict.next_test()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the command line in this process: `run("build", "newton", "--json")`."""

    def run(*words: str) -> Ran:
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
        return Ran(code, out, err)

    return run
