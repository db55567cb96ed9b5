"""Small claims for tests of the ledger. Workers import this file, so it imports no test module."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from innerloop.claims.base import Claim, claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.errors import MissingLibraryError


def make_evidence(generator: torch.Generator) -> Evidence:
    matrix = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    value = float(torch.linalg.inv(matrix).sum())
    check = Check(statement="a sum", passed=True, summary=f"1 case, {value!r}")
    return Evidence(parts=[Part(printed=check)], numbers={"value": value})


def conclude(found: list[float]) -> Evidence:
    check = Check(statement="all", passed=True, summary=f"{len(found)} cells")
    numbers = {f"part {k}": value for k, value in enumerate(found)}
    return Evidence(parts=[Part(printed=check)], numbers=numbers)


def declare(id: str, **rest: Any) -> Any:
    cells = {"quick": {"pause": 0.1}, "full": {"pause": 0.1, "more": True}}
    return claim(id, "Something.", where="here", kind="equality", **{**cells, **rest})


@declare("toy.one")
def one(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    time.sleep(pause)
    return make_evidence(generator)


@declare("toy.two")
def two(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    time.sleep(pause)
    return make_evidence(generator)


PARTS = [{"part": k} for k in range(6)]


@declare("toy.three", quick=PARTS, full=PARTS, conclude=conclude)
def three(generator: torch.Generator, *, part: int) -> float:
    time.sleep(0.1)
    return float(torch.rand((), generator=generator, dtype=torch.float64))


WEIGHTS = {"sizes": {"machine": "toy-weights"}}


@declare("named.weights", quick=WEIGHTS, full=WEIGHTS)
def weights(generator: torch.Generator, *, sizes: dict[str, str]) -> Evidence:
    return make_evidence(generator)


@declare("bad.raises")
def raises(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    raise RuntimeError("this check is broken")


@declare("needs.library")
def lacks(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    raise MissingLibraryError("this needs the library moonlight")


@declare("bad.nan")
def nan(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    return Evidence(parts=make_evidence(generator).parts, numbers={"none": float("nan")})


@declare("bad.kills", quick={"folder": "."})
def kills(generator: torch.Generator, *, folder: str) -> Evidence:
    write_note("deaths", "x")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


@declare("slow.sleeps")
def sleeps(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    write_note("pids", f"{os.getpid()}\n")
    if not (find_notes() / "go").exists():
        time.sleep(60)
    return make_evidence(generator)


def find_notes() -> Path:
    """Find the folder of the toys' notes."""
    return Path(os.environ["TOYS"])


def write_note(name: str, text: str) -> None:
    with (find_notes() / name).open("a") as log:
        log.write(text)


CLAIMS = {value.id: value for value in list(vars().values()) if isinstance(value, Claim)}
