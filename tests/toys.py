"""Claims to run, and to be killed. Workers import this file, so it needs nothing of the tests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from innerloop.claims.base import Claim, claim
from innerloop.claims.evidence import Check, Evidence, Part


def evidence(generator: torch.Generator) -> Evidence:
    matrix = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    value = float(torch.linalg.inv(matrix).sum())
    check = Check(statement="a sum", passed=True, summary=f"1 case, {value!r}")
    return Evidence(parts=[Part(printed=check)], numbers={"value": value})


def concluded(found: list[float]) -> Evidence:
    check = Check(statement="all", passed=True, summary=f"{len(found)} cells")
    numbers = {f"part {k}": value for k, value in enumerate(found)}
    return Evidence(parts=[Part(printed=check)], numbers=numbers)


def declared(id: str, **rest: Any) -> Any:
    cells = {"quick": {"pause": 0.1}, "full": {"pause": 0.1, "more": True}}
    return claim(id, "Something.", where="here", kind="equality", **{**cells, **rest})


@declared("toy.one")
def one(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    time.sleep(pause)
    return evidence(generator)


@declared("toy.two")
def two(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    time.sleep(pause)
    return evidence(generator)


PARTS = [{"part": k} for k in range(6)]


@declared("toy.three", quick=PARTS, full=PARTS, conclude=concluded)
def three(generator: torch.Generator, *, part: int) -> float:
    time.sleep(0.1)
    return float(torch.rand((), generator=generator, dtype=torch.float64))


WEIGHTS = {"sizes": {"machine": "toy-weights"}}


@declared("named.weights", quick=WEIGHTS, full=WEIGHTS)
def weights(generator: torch.Generator, *, sizes: dict[str, str]) -> Evidence:
    return evidence(generator)


@declared("bad.raises")
def raises(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    raise RuntimeError("this check is broken")


@declared("bad.nan")
def nan(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    return Evidence(parts=evidence(generator).parts, numbers={"none": float("nan")})


@declared("bad.kills", quick={"folder": "."})
def kills(generator: torch.Generator, *, folder: str) -> Evidence:
    note("deaths", "x")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


@declared("slow.sleeps")
def sleeps(generator: torch.Generator, *, pause: float, more: bool = False) -> Evidence:
    note("pids", f"{os.getpid()}\n")
    if not (folder() / "go").exists():
        time.sleep(60)
    return evidence(generator)


def folder() -> Path:
    """Where toys leave notes."""
    return Path(os.environ["TOYS"])


def note(name: str, text: str) -> None:
    with (folder() / name).open("a") as log:
        log.write(text)


CLAIMS = {value.id: value for value in list(vars().values()) if isinstance(value, Claim)}
