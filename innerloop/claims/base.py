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
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from innerloop.claims.evidence import Evidence
from innerloop.claims.sources import Source, load_sources
from innerloop.errors import InputError
from innerloop.locations import get_location

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
    document: Source | None = None
    """The document, where it is not one of this package's sources."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.id):
            raise InputError(
                f"a claim's id is letters, digits, dots and dashes, such as ahn2023.lemma-2; "
                f"got {self.id!r}"
            )

    @property
    def source(self) -> str:
        """The key of the document: the first word of the id."""
        return self.id.partition(".")[0]

    @property
    def citation(self) -> str:
        """The citation of the claim's source: its own, its package's, or just its key."""
        return str(self.document or load_sources().get(self.source, self.source))

    @property
    def module(self) -> str:
        """The module whose code decides the outcome."""
        return self.measure.__module__

    @property
    def location(self) -> str:
        """What another process loads the claim from: its module, or its file."""
        return get_location(self.module)

    def run(self, settings: Settings, seed: int = 0, **forms: Any) -> Any:
        """What one cell finds, as plain data. `forms` replace what is stated."""
        found = self.measure(seed_generator(self.id, settings, seed), **settings, **forms)
        return found.as_dict() if self.conclude is None else found

    def build_evidence(self, found: Sequence[Any]) -> Evidence:
        """What the cells found, as one evidence."""
        if self.conclude is not None:
            return self.conclude(list(found))
        (only,) = found
        return Evidence.from_dict(only)

    def check(self, cells: Sequence[Settings], seed: int = 0, **forms: Any) -> Evidence:
        """Run cells here and now, those of a preset or the tiny ones."""
        return self.build_evidence([self.run(settings, seed, **forms) for settings in cells])


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
    source: Source | None = None,
) -> Callable[[Callable[..., Any]], Claim]:
    """Declare the function below as the test of a claim. Without sizes of its own, `paper` is
    `full`: most statements name none."""
    presets: dict[Preset, Sequence[Settings]] = {
        "quick": _as_cells(quick),
        "full": _as_cells(full),
        "paper": _as_cells(full if paper is None else paper),
    }
    least = _as_cells(quick if tiny is None else tiny)

    def declared(measure: Callable[..., Any]) -> Claim:
        forms = falsified or {}
        return Claim(id, statement, where, kind, presets, measure, conclude, forms, least, source)

    return declared


def _as_cells(given: Settings | Sequence[Settings]) -> Sequence[Settings]:
    return [given] if isinstance(given, Mapping) else list(given)


def seed_generator(id: str, settings: Settings, seed: int) -> torch.Generator:
    """A generator that only claim, settings and seed decide: not the engine, not the order."""
    told = json.dumps([id, settings, seed], sort_keys=True)
    drawn = int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big")
    return torch.Generator().manual_seed(drawn >> 1)
