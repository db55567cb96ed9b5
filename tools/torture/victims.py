"""The objects of the attacks: a training of a few steps, claims that take no time, their
folders.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import Claim, claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.ledger.run import Outcome, Run
from innerloop.ledger.store import Store
from innerloop.ledger.work import run_cell
from innerloop.recipes import base as recipes
from innerloop.registry import make_member

SETTINGS: dict[str, Any] = {"d": 2, "n": 4, "batch": 16, "steps": 6, "evaluate_every": 2}
SEED = 3


def make_recipe(name: str = "linear-attention") -> recipes.Recipe:
    """Return the recipe that is attacked."""
    return make_member("recipes", recipes.Recipe, name, SETTINGS)


def train_here(folder: Path, *, resume: bool = False) -> recipes.TrainedRun:
    """Train the recipe in a folder, with a checkpoint after every step."""
    options = {"seed": SEED, "resume": resume, "every": 0.0, "notice": ignore_notice}
    return recipes.train(make_recipe(), folder=folder, **options)


def ignore_notice(text: str) -> None:
    """Ignore a line that a user would read."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a finished run."""
    return dict(recipes.load(path / "model.safetensors")[1].state_dict())


def make_evidence(generator: torch.Generator) -> Evidence:
    values = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
    check = Check(statement="a < b", passed=True, summary=f"4 cases, {values[0]!r}")
    wrong = Check(statement="a > b", passed=False, summary="0 of 4", counterexample="a = 1, b = 2")
    rows = [{"x": k, "y": value} for k, value in enumerate(values)]
    x, y = Axis(field="x", title="n"), Axis(field="y", title="error")
    return Evidence(
        parts=[Part(printed=check), Part(printed=wrong, corrected=check)],
        numbers={"value": values[0], "cases": 4},
        table=rows,
        figures=[Figure(title="errors", rows=rows, caption="four", x=x, y=y)],
    )


def declare(id: str, **rest: Any) -> Any:
    return claim(id, "a < b", where="Lemma 1", kind="equality", **rest)


@declare("toy.one", quick={"pause": 0.0}, full={"pause": 0.0})
def one(generator: torch.Generator, *, pause: float) -> Evidence:
    time.sleep(pause)
    return make_evidence(generator)


def conclude(values: list[float]) -> Evidence:
    check = Check(statement="all", passed=True, summary=f"{len(values)} cells")
    numbers = {f"part {k}": value for k, value in enumerate(values)}
    return Evidence(parts=[Part(printed=check)], numbers=numbers)


PARTS = [{"part": k} for k in range(4)]


@declare("toy.parts", quick=PARTS, full=PARTS, conclude=conclude)
def parts(generator: torch.Generator, *, part: int) -> float:
    time.sleep(0.002)
    return float(torch.rand((), generator=generator, dtype=torch.float64))


CLAIMS = {value.id: value for value in list(vars().values()) if isinstance(value, Claim)}


class InlineEngine:
    """Runs the parts of a check in this process, one at a time."""

    max_deaths = 1
    slots = 1
    work: Callable[..., str] = staticmethod(run_cell)

    def submit(self, *arguments: Any) -> Future[str]:
        future: Future[str] = Future()
        future.set_result(self.work(*arguments))
        return future

    def is_worker_death(self, error: BaseException) -> bool:
        return False

    def check_health(self, error: BaseException | None = None) -> str:
        return ""

    def close(self) -> None:
        pass


def check_here(folder: Path, notices: list[str], engine: Any = InlineEngine) -> list[Outcome]:
    """Check the test claims with their stored results in a folder."""
    store = Store(folder, notices.append)
    run = Run(store, engine, notice=notices.append, claims=CLAIMS)
    outcomes = run.check(list(CLAIMS), "quick")
    notices += run.write_errors
    return outcomes


def read_cells(folder: Path) -> dict[str, Any]:
    """Read the stored result of every claim file in a folder; the keys are relative paths."""
    return {
        str(path.relative_to(folder)): json.loads(path.read_bytes())["content"]["found"]
        for path in sorted(folder.glob("*/*/*.json"))
    }
