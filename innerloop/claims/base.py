"""A claim: what a source states, and the function that puts it to the test.

    @claim(
        "ahn2023.lemma-2",
        "k layers of linear attention of form (9) are k steps of preconditioned gradient descent.",
        where="Lemma 2",
        kind="equality",
        hypotheses={"A_i symmetric": "the lemma"},
        quick={"trials": 40},
        full={"trials": 4000},
        tiny={"trials": 5},
        judge=judge_steps,
        falsified={"labels of other layers": shuffle_layers},
    )
    def lemma_2(generator: torch.Generator, *, trials: int) -> list[Layers]: ...

    def judge_steps(data: list[Layers]) -> Evidence: ...

What is measured and how it is judged are two functions, so that data that contradict the statement
can take the place of what was measured: `falsified` maps a name to a function from data to data. A
part that no such data can break is no check; a test tries every part, correction and mended
erratum, with the `tiny` settings (those of `quick` unless given).

A preset is the settings of a claim's one cell, or a list of them; several cells are measured apart,
each with its own generator, and `conclude` judges the list of what they found, which is plain data
and is stored:

    @claim(..., conclude=judge_curves, falsified={"flat curves": flatten})
    def figure_1(generator, *, restart: int) -> dict[str, Any]: ...

`restates={"gatmiry2024.theorem-A.11": "Appendix A.1, Theorem A.11"}` gives a statement that is
printed twice one check and one verdict under both ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
Form = Callable[[Any], Any]
"""A falsified form: a function from data to data."""


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
    falsified: Mapping[str, Form]
    tiny: Sequence[Settings]
    document: Source | None = None
    """The document, where it is not one of this package's sources."""
    judge: Callable[[Any], Evidence] | None = None
    hypotheses: Mapping[str, str] = field(default_factory=dict)
    """What the statement presupposes, each with where that comes from."""
    restates: Mapping[str, str] = field(default_factory=dict)
    """Further ids of the same statement, each with where it is printed."""
    decided_by: str = ""
    """The computation or the mathematics that would decide the claim where it is undecided."""
    missing: str = ""
    """One sentence: what the source does not print although the outcome depends on it. Where data
    leave a part undecided, the verdict is then "not decidable from the source"."""
    out_of_reach: str = ""
    """The cost of deciding what is undecided, where it cannot be paid here."""
    original: str = ""
    """The id of the claim whose check and verdict a restatement shares."""

    def __post_init__(self) -> None:
        reasons = [
            name for name in ("decided_by", "missing", "out_of_reach") if getattr(self, name)
        ]
        if len(reasons) > 1:
            raise InputError(
                f"{self.id}: a claim gives one reason for being undecided (`decided_by`, `missing` "
                f"or `out_of_reach`); got {' and '.join(reasons)}"
            )
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

    @property
    def cell_id(self) -> str:
        """The id under which results are stored: a restatement has those of its original."""
        return self.original or self.id

    def list_restatements(self) -> list[Claim]:
        """List the claims that are this one under other ids."""
        shared = {"restates": {}, "original": self.id}
        return [replace(self, id=id, where=at, **shared) for id, at in self.restates.items()]

    def run(self, settings: Settings, seed: int = 0) -> Any:
        """What one cell finds, as plain data."""
        found = self.gather(settings, seed)
        if self.conclude is not None:
            return found
        return (found if self.judge is None else self.judge(found)).as_dict()

    def gather(self, settings: Settings, seed: int = 0) -> Any:
        """Measure one cell: the data that `judge` or `conclude` takes."""
        return self.measure(seed_generator(self.cell_id, settings, seed), **settings)

    def judge_cells(self, data: Sequence[Any], form: Form | None = None) -> Evidence:
        """Judge what `gather` gave for each cell, changed by a falsified form if one is given."""
        if self.conclude is not None:
            cells = list(data) if form is None else form(list(data))
            return self._explain(self.conclude(cells))
        (only,) = data
        changed = only if form is None else form(only)
        return self._explain(changed if self.judge is None else self.judge(changed))

    def build_evidence(self, found: Sequence[Any]) -> Evidence:
        """What the cells found, as one evidence."""
        if self.conclude is not None:
            return self._explain(self.conclude(list(found)))
        (only,) = found
        return self._explain(Evidence.from_dict(only))

    def _explain(self, evidence: Evidence) -> Evidence:
        return evidence.explain_undecided(self.missing, self.out_of_reach)

    def check(self, cells: Sequence[Settings], seed: int = 0) -> Evidence:
        """Run cells here and now, those of a preset or the tiny ones."""
        return self.build_evidence([self.run(settings, seed) for settings in cells])


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
    judge: Callable[[Any], Evidence] | None = None,
    falsified: Mapping[str, Form] | None = None,
    hypotheses: Mapping[str, str] | None = None,
    restates: Mapping[str, str] | None = None,
    decided_by: str = "",
    missing: str = "",
    out_of_reach: str = "",
    source: Source | None = None,
) -> Callable[[Callable[..., Any]], Claim]:
    """Declare the function below as the test of a claim.

    Args:
        id: `source.place`, such as "ahn2023.lemma-2".
        statement: What the source asserts, as one or two sentences of our own.
        where: Where the source says it.
        kind: equality, inequality, rate, ordering or figure.
        quick: Keyword arguments of the function at the preset `quick`, or a list of them: one per
            cell.
        full: The same at `full`.
        paper: The same at the source's own sizes; without it, `paper` is `full`.
        tiny: The same for tests; `quick` if None.
        conclude: Makes evidence of the data of all cells.
        judge: Makes evidence of the data of the only cell. Without either, the function returns
            evidence itself, and nobody can show it false data.
        falsified: Data that contradict the statement, by name: functions from the genuine to the
            false. The claim must say no to them.
        hypotheses: What the source presupposes, with where it says so.
        restates: Further ids of the same statement, each with where it is printed.
        decided_by: The computation or the mathematics that would decide the claim where its data
            do not.
        missing: One sentence about what the source does not print and the outcome depends on. With
            it, a claim that its data leave undecided is "not decidable from the source".
        out_of_reach: The cost of deciding what is undecided, where it cannot be paid here. With it,
            a claim that its data leave undecided is "out of reach".
        source: Where the claim is from, unless it is in a package of claims that has a `SOURCE`.

    Returns:
        A decorator that turns the function, of a `torch.Generator` and the settings, into a
        `Claim`.
    """
    presets: dict[Preset, Sequence[Settings]] = {
        "quick": _as_cells(quick),
        "full": _as_cells(full),
        "paper": _as_cells(full if paper is None else paper),
    }
    if judge is not None and conclude is not None:
        raise InputError(f"{id}: `judge` takes what one cell measured, `conclude` all; give one")

    def declared(measure: Callable[..., Any]) -> Claim:
        return Claim(
            id=id,
            statement=statement,
            where=where,
            kind=kind,
            presets=presets,
            measure=measure,
            conclude=conclude,
            falsified=falsified or {},
            tiny=_as_cells(quick if tiny is None else tiny),
            document=source,
            judge=judge,
            hypotheses=hypotheses or {},
            restates=restates or {},
            decided_by=decided_by,
            missing=missing,
            out_of_reach=out_of_reach,
        )

    return declared


def _as_cells(given: Settings | Sequence[Settings]) -> Sequence[Settings]:
    return [given] if isinstance(given, Mapping) else list(given)


def seed_generator(id: str, settings: Settings, seed: int) -> torch.Generator:
    """A generator that only claim, settings and seed decide: not the engine, not the order."""
    told = json.dumps([id, settings, seed], sort_keys=True)
    drawn = int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big")
    return torch.Generator().manual_seed(drawn >> 1)
