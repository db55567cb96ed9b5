"""A claim: a statement of a source, and the functions that test it.

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

One function measures and another one judges. The judge can therefore also be run on data that
contradict the statement: `falsified` maps a name to a function that falsifies the measured data. A
part that accepts all such data tests nothing. A test of the package requires that falsified data
fail every part, correction and corrected erratum; it uses the settings `tiny`, which are those of
`quick` by default.

A preset holds the settings of a claim's cell, or a list of settings for several cells. Each cell is
measured separately, with a generator of its own, and returns plain data, which are stored.
`conclude` judges the list of these data:

    @claim(..., conclude=judge_curves, falsified={"flat curves": flatten})
    def figure_1(generator, *, restart: int) -> dict[str, Any]: ...

If a statement is printed twice, `restates={"gatmiry2024.theorem-A.11": "Appendix A.1, Theorem
A.11"}` gives its check and its verdict a second id.
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
"""Plain data that JSON can represent."""
Form = Callable[[Any], Any]
"""A falsified form: a function from data to data."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A statement of a source, with the functions and the settings that test it."""

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
    """The document, if it is not one of this package's sources."""
    judge: Callable[[Any], Evidence] | None = None
    hypotheses: Mapping[str, str] = field(default_factory=dict)
    """The hypotheses of the statement; each maps to the place where the source states it."""
    restates: Mapping[str, str] = field(default_factory=dict)
    """Further ids of the same statement; each maps to the place where it is printed."""
    decided_by: str = ""
    """The computation or the mathematics that would decide an undecided claim."""
    missing: str = ""
    """One sentence that names what the source does not print although the outcome depends on it. An
    undecided claim then has the verdict "not decidable from the source"."""
    out_of_reach: str = ""
    """The cost of deciding the claim, if it is too large. An undecided claim then has the verdict
    "out of reach"."""
    original: str = ""
    """The id of the claim that this one restates. Both have the same check and verdict."""

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
        """The key of the document: the part of the id before the first dot."""
        return self.id.partition(".")[0]

    @property
    def citation(self) -> str:
        """The citation of the source: the claim's own, that of its package, or the key."""
        return str(self.document or load_sources().get(self.source, self.source))

    @property
    def module(self) -> str:
        """The name of the module that declares the claim."""
        return self.measure.__module__

    @property
    def location(self) -> str:
        """The module or the file from which another process can load the claim."""
        return get_location(self.module)

    @property
    def cell_id(self) -> str:
        """The id under which results are stored: that of the original for a restatement."""
        return self.original or self.id

    def list_restatements(self) -> list[Claim]:
        """List the restatements: this claim under its other ids."""
        shared = {"restates": {}, "original": self.id}
        return [replace(self, id=id, where=at, **shared) for id, at in self.restates.items()]

    def run(self, settings: Settings, seed: int = 0) -> Any:
        """Run one cell and return its result as plain data."""
        data = self.gather(settings, seed)
        if self.conclude is not None:
            return data
        return (data if self.judge is None else self.judge(data)).as_dict()

    def gather(self, settings: Settings, seed: int = 0) -> Any:
        """Measure one cell, and return the data for `judge` or `conclude`."""
        return self.measure(seed_generator(self.cell_id, settings, seed), **settings)

    def judge_cells(self, data: Sequence[Any], form: Form | None = None) -> Evidence:
        """Judge the measured data of all cells. If `form` is not None, falsify the data first."""
        if self.conclude is not None:
            cells = list(data) if form is None else form(list(data))
            return self._explain(self.conclude(cells))
        (measured,) = data
        judged = measured if form is None else form(measured)
        return self._explain(judged if self.judge is None else self.judge(judged))

    def build_evidence(self, results: Sequence[Any]) -> Evidence:
        """Combine the results of all cells, as `run` returns them, into the claim's evidence."""
        if self.conclude is not None:
            return self._explain(self.conclude(list(results)))
        (result,) = results
        return self._explain(Evidence.from_dict(result))

    def _explain(self, evidence: Evidence) -> Evidence:
        return evidence.explain_undecided(self.missing, self.out_of_reach)

    def check(self, cells: Sequence[Settings], seed: int = 0) -> Evidence:
        """Run cells in this process and return the evidence; nothing is stored."""
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
    """Declare the decorated function as the measurement of a claim.

    Args:
        id: `source.place`, such as "ahn2023.lemma-2".
        statement: What the source asserts, as one or two sentences of our own.
        where: The place in the source, such as "Lemma 2".
        kind: equality, inequality, rate, ordering or figure.
        quick: Keyword arguments of the function at the preset `quick`, or a list of them with one
            entry for each cell.
        full: The same for the preset `full`.
        paper: The same for the sizes that the source uses; by default, those of `full`.
        tiny: The same for tests; by default, those of `quick`.
        conclude: Function from the data of all cells to the evidence.
        judge: Function from the data of the claim's only cell to the evidence. Without `judge` and
            `conclude`, the decorated function returns evidence itself, and cannot be tested on
            falsified data.
        falsified: Functions by name, each of which changes measured data so that they contradict
            the statement. The claim must reject the changed data.
        hypotheses: The hypotheses of the statement; each maps to its place in the source.
        restates: Further ids of the same statement; each maps to the place where it is printed.
        decided_by: The computation or the mathematics that would decide an undecided claim.
        missing: One sentence that names what the source does not print although the outcome depends
            on it. An undecided claim is then "not decidable from the source".
        out_of_reach: The cost of deciding the claim, if it is too large. An undecided claim is then
            "out of reach".
        source: The document, unless the claim is in a package of claims that declares a `SOURCE`.

    Returns:
        A decorator for a function of a `torch.Generator` and the settings. It returns a `Claim`.
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


def _as_cells(cells: Settings | Sequence[Settings]) -> Sequence[Settings]:
    return [cells] if isinstance(cells, Mapping) else list(cells)


def seed_generator(id: str, settings: Settings, seed: int) -> torch.Generator:
    """Make a generator that depends on claim, settings and seed, but not on engine or order."""
    text = json.dumps([id, settings, seed], sort_keys=True)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return torch.Generator().manual_seed(number >> 1)
