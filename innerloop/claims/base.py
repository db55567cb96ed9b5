"""A claim: what a source states, and the function that puts it to the test.

    @claim(
        "ahn2023.lemma-2",
        "k layers of linear attention of form (9) are k steps of preconditioned gradient descent.",
        where="Lemma 2",
        kind="equality",
        quick={"trials": 40},
        full={"trials": 4000},
        tiny={"trials": 5},
        falsified={"the gradient's sign": {"step": ascending}},
    )
    def lemma_2(generator: torch.Generator, *, trials: int, step=printed_step) -> Evidence: ...

A preset is the settings of a claim's one cell, or a list of them; several cells are measured apart,
each with its own generator, and `conclude` makes one evidence of what they found:

    @claim(..., conclude=averaged)
    def figure_1(generator, *, restart: int) -> dict[str, Any]: ...

What is stated is a keyword argument of the function, so that a falsified statement can take its
place: a claim that accepts one of its `falsified` forms is no check, and a test tries them all,
with the `tiny` settings (those of `quick` unless given).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import torch

from innerloop.claims.evidence import Evidence
from innerloop.errors import InputError, unknown

Kind = Literal["equality", "inequality", "rate", "ordering", "figure"]
Preset = Literal["quick", "full", "paper"]
PRESETS: tuple[Preset, ...] = ("quick", "full", "paper")
Settings = Mapping[str, Any]
"""Plain data: what JSON can hold."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A statement of a source, and how it is tested at each preset."""

    id: str
    statement: str
    where: str
    kind: Kind
    presets: Mapping[Preset, Sequence[Settings]]
    measure: Callable[..., Any]
    conclude: Callable[[list[Any]], Evidence] | None
    falsified: Mapping[str, Mapping[str, Any]]
    tiny: Sequence[Settings]

    @property
    def source(self) -> str:
        """The key of the document: the first word of the id."""
        return self.id.partition(".")[0]

    @property
    def module(self) -> str:
        """The module whose code decides the outcome."""
        return self.measure.__module__

    def run(self, settings: Settings, seed: int = 0, **forms: Any) -> Any:
        """What one cell finds, as plain data. `forms` replace what is stated."""
        found = self.measure(generator_of(self.id, settings, seed), **settings, **forms)
        return found.as_dict() if self.conclude is None else found

    def evidence(self, found: Sequence[Any]) -> Evidence:
        """What the cells found, as one evidence."""
        if self.conclude is not None:
            return self.conclude(list(found))
        (only,) = found
        return Evidence.of(only)

    def check(self, cells: Sequence[Settings], seed: int = 0, **forms: Any) -> Evidence:
        """Run cells here and now, those of a preset or the tiny ones."""
        return self.evidence([self.run(settings, seed, **forms) for settings in cells])


def claim(
    id: str,
    statement: str,
    *,
    where: str,
    kind: Kind,
    quick: Settings | Sequence[Settings],
    full: Settings | Sequence[Settings],
    paper: Settings | Sequence[Settings] | None = None,
    tiny: Settings | Sequence[Settings] | None = None,
    conclude: Callable[[list[Any]], Evidence] | None = None,
    falsified: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Callable[..., Any]], Claim]:
    """Declare the function below as the test of a claim. Without sizes of its own, `paper` is
    `full`: most statements name none."""
    presets: dict[Preset, Sequence[Settings]] = {
        "quick": _cells(quick),
        "full": _cells(full),
        "paper": _cells(full if paper is None else paper),
    }
    least = _cells(quick if tiny is None else tiny)

    def declared(measure: Callable[..., Any]) -> Claim:
        return Claim(id, statement, where, kind, presets, measure, conclude, falsified or {}, least)

    return declared


def _cells(given: Settings | Sequence[Settings]) -> Sequence[Settings]:
    return [given] if isinstance(given, Mapping) else list(given)


def generator_of(id: str, settings: Settings, seed: int) -> torch.Generator:
    """A generator that only claim, settings and seed decide: not the engine, not the order."""
    told = json.dumps([id, settings, seed], sort_keys=True)
    drawn = int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big")
    return torch.Generator().manual_seed(drawn >> 1)


def check(id: str, preset: Preset = "quick", seed: int = 0) -> Evidence:
    """Put one claim to the test here and now; nothing is stored."""
    known = claims()
    if id not in known:
        told = " (it is listed, but has no check yet)" if id in wanted() else ""
        raise InputError(f"{unknown('claim', id, known)}{told}")
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    return known[id].check(known[id].presets[preset], seed)


@cache
def claims() -> dict[str, Claim]:
    """Every claim that a file below `innerloop.claims` declares, by id, in the order of `wanted`.

    A claim is found by being there: a new one is a new function, and no list to edit.
    """
    root = importlib.import_module("innerloop.claims")
    found: dict[str, Claim] = {}
    for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, Claim) and value.module == info.name:
                if value.id in found:
                    raise InputError(f"{info.name} declares {value.id} a second time")
                found[value.id] = value
    order = {id: k for k, id in enumerate(wanted())}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


@cache
def wanted() -> dict[str, str]:
    """Every statement of the sources that is to be checked: its id, and what it says in brief."""
    lines = files("innerloop.claims").joinpath("wanted.txt").read_text("utf-8").splitlines()
    listed = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {id: brief for id, _, brief in listed}


def chosen(words: Sequence[str]) -> list[str]:
    """The ids that words name: an id itself, or all that begin with the word. No words: all."""
    known = list(dict.fromkeys([*wanted(), *claims()]))
    if not words:
        return known
    found: set[str] = set()
    for word in words:
        matching = [word] if word in known else [id for id in known if id.startswith(word)]
        if not word or not matching:
            raise unknown("claim", word, known)
        found.update(matching)
    return [id for id in known if id in found]


def described() -> list[dict[str, Any]]:
    """Every claim with its statement and source, and whether there is a check for it."""
    known = claims()
    return [
        {
            "name": id,
            "description": known[id].statement if id in known else wanted()[id],
            "source": ", ".join(
                [id.partition(".")[0], *([known[id].where] if id in known else [])]
            ),
            "checked": id in known,
        }
        for id in chosen([])
    ]
