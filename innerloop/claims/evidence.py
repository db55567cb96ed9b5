"""The outcome of a claim: checks of what the source asserts, errata, and further findings.

    Evidence(
        parts=[Part(printed=statement.check(), corrected=mended.check())],
        errata=[Erratum(where="proof, (35)", printed=line.check(), corrected=right.check())],
        beyond=[skew.check()],
    )

Nobody writes a verdict: it is computed from the checks of the parts alone. Errata and further
findings (`beyond`) are shown beside the verdict. Evidence consists of plain data that JSON can
represent. Other values raise an error; a NaN, for example, means that the check itself is wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from innerloop.claims.figures import Axis, Figure, Rows, Value

Verdict = Literal[
    "holds",
    "holds as corrected",
    "fails",
    "undecided",
    "not decidable from the source",
    "out of reach",
    "vacuous",
]
Grade = Literal["step", "print"]
"""Kind of an erratum: a wrong formula in a derivation (`step`), or a misprint whose intended form a
reader can see (`print`)."""
ENOUGH_TRAININGS = 3
"""Smallest number of training runs on which a statement about trained networks may rest."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The test of one form of a statement."""

    statement: str
    """The form that was tested, with its symbols."""
    passed: bool | None
    """None if the data cannot decide, for example if an interval contains the threshold."""
    summary: str
    """The number and the sizes of the tested cases, and both sides of the closest case."""
    counterexample: str = ""
    """The smallest counterexample, which a reader can check by hand or in three lines of NumPy."""
    ours: str = ""
    """Thresholds that we chose because the source does not state them. They are shown as ours."""

    @property
    def outcome(self) -> str:
        return {True: "holds", False: "fails", None: "undecided"}[self.passed]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One assertion of a claim: its printed form, and a correction if the printed form fails."""

    printed: Check
    """The test of the printed form, in the author's reading."""
    corrected: Check | None = None
    weaker: Check | None = None
    """A true statement that is weaker than the printed form, which fails. It is shown beside the
    verdict and does not change it, because a correction must be as strong as the printed form."""
    reading: str = ""
    """If the words allow several readings: that of the author, and the evidence for it (the proof,
    public code, a caption)."""
    other_readings: Mapping[str, Check] = field(default_factory=dict)
    """Readings that are not the author's, by name. They are shown and do not affect the verdict."""
    vacuous: str = ""
    """Why the printed form asserts nothing although it is true. For example, its hypotheses are
    never satisfied, or it holds with a probability of at least 0."""
    trainings: int | None = None
    """Number of training runs that the part rests on; None if nothing is trained."""

    def __post_init__(self) -> None:
        if self.other_readings and not self.reading:
            raise ValueError("other readings need `reading`: which is the author's, and why")

    @property
    def verdict(self) -> Verdict:
        if self.printed.passed:
            return "vacuous" if self.vacuous else "holds"
        if self.printed.passed is None:
            return "undecided"
        corrected = self.corrected is not None and self.corrected.passed
        return "holds as corrected" if corrected else "fails"

    @property
    def has_open_correction(self) -> bool:
        """Whether the printed form fails and the data do not decide its correction."""
        return self.verdict == "fails" and bool(self.corrected and self.corrected.passed is None)

    def as_erratum(self, where: str, grade: Grade = "step") -> Erratum:
        """Turn the part into an erratum: an error in a proof, and not in what the claim asserts."""
        return Erratum(where=where, printed=self.printed, corrected=self.corrected, grade=grade)


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """A proof step or a display that is wrong; the claim's verdict does not depend on it."""

    where: str
    """The place in the source, such as "proof of Lemma 7, display (37)"."""
    printed: Check
    """The printed form, which fails, with a counterexample."""
    corrected: Check | None = None
    meant: str = ""
    """The intended form in words, if there is nothing to compute."""
    grade: Grade = "step"

    @property
    def stands(self) -> bool:
        """Whether the check confirms that the printed form is wrong."""
        return self.printed.passed is False


def misprint(where: str, printed: str, meant: str, example: str) -> Erratum:
    """Describe a misprint that a reader can see without a computation."""
    check = Check(
        statement=printed, passed=False, summary="seen by reading", counterexample=example
    )
    return Erratum(where=where, printed=check, meant=meant, grade="print")


_VERDICTS_WORST_FIRST: tuple[Verdict, ...] = (
    "fails",
    "undecided",
    "holds as corrected",
    "holds",
    "vacuous",
)
"""A claim is vacuous only if all of its parts are; otherwise `Evidence.marks` counts them."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The outcome of a claim: parts with their checks, errata, findings, numbers and figures."""

    parts: Sequence[Part] = ()
    """The assertions of the source."""
    errata: Sequence[Erratum] = ()
    beyond: Sequence[Check] = ()
    """Further findings of ours, about which the source states nothing."""
    numbers: Mapping[str, Value] = field(default_factory=dict)
    table: Rows = ()
    figures: Sequence[Figure] = ()
    missing: str = ""
    """What the source does not print although the outcome of an undecided part depends on it."""
    out_of_reach: str = ""
    """Why the claim, or an undecided part of it, cannot be tested here."""

    def __post_init__(self) -> None:
        if not (self.parts or self.out_of_reach):
            raise ValueError("evidence needs parts, or a reason (`out_of_reach`) for having none")
        if self.missing and self.out_of_reach:
            raise ValueError("evidence takes `missing` or `out_of_reach`, got both")
        _require_plain_data("evidence", asdict(self))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the parts; if that is undecided, the reason for it."""
        verdicts: set[Verdict] = {part.verdict for part in self.parts}
        if not verdicts:
            return "out of reach"
        worst = min(verdicts, key=_VERDICTS_WORST_FIRST.index)
        if worst == "undecided" and self.missing:
            return "not decidable from the source"
        if worst == "undecided" and self.out_of_reach:
            return "out of reach"
        return worst

    def explain_undecided(self, missing: str, out_of_reach: str) -> Evidence:
        """Add the reason why parts are undecided; evidence without such parts is returned as is."""
        if not any(part.verdict == "undecided" for part in self.parts):
            return self
        return replace(
            self,
            missing=self.missing or missing,
            out_of_reach=self.out_of_reach or out_of_reach,
        )

    @property
    def is_open(self) -> bool:
        """Whether more computation could decide the claim, or the correction of a part."""
        return self.verdict == "undecided" or any(part.has_open_correction for part in self.parts)

    @property
    def marks(self) -> list[str]:
        """Notes beside the verdict: an open correction, few trainings, vacuous parts, errata."""
        counts = [part.trainings for part in self.parts if part.trainings is not None]
        least = min(counts, default=ENOUGH_TRAININGS)
        marks = []
        if any(part.has_open_correction for part in self.parts):
            marks.append("correction open")
        if least < ENOUGH_TRAININGS:
            marks.append("one training" if least == 1 else f"{least} trainings")
        vacuous = sum(part.verdict == "vacuous" for part in self.parts)
        if vacuous and self.verdict != "vacuous":
            marks.append("1 part vacuous" if vacuous == 1 else f"{vacuous} parts vacuous")
        if errata := sum(erratum.stands for erratum in self.errata):
            marks.append("1 erratum" if errata == 1 else f"{errata} errata")
        return marks

    @property
    def label(self) -> str:
        """The verdict with its marks: "holds · one training · 1 part vacuous · 2 errata"."""
        return " · ".join([self.verdict, *self.marks])

    @property
    def summary(self) -> str:
        """One paragraph with the outcome of each part and erratum."""
        if not self.parts:
            return self.out_of_reach
        texts = [_describe(part.printed, part.corrected, part.weaker) for part in self.parts]
        texts += [f"Erratum, {e.where}: {_describe(e.printed, e.corrected)}" for e in self.errata]
        return " ".join(texts)

    def list_checks(self) -> Iterator[tuple[str, Check]]:
        """List every check of a part, a correction, a weaker statement or a corrected erratum."""
        for k, part in enumerate(self.parts, 1):
            yield f"part {k}, printed", part.printed
            if part.corrected is not None:
                yield f"part {k}, corrected", part.corrected
            if part.weaker is not None:
                yield f"part {k}, weaker", part.weaker
        for k, erratum in enumerate(self.errata, 1):
            if erratum.corrected is not None:
                yield f"erratum {k}, corrected", erratum.corrected

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON data; `Evidence.from_dict` is the inverse."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evidence:
        """Rebuild the evidence from the output of `as_dict`, also that of former versions.

        Former versions stored an erratum of a proof as a part that counted for the verdict. It
        remains a part here, so that the verdict is unchanged. They also stored what would decide a
        claim among its numbers; it is now a field of the claim, and left out here.
        """
        former = "what would decide it"
        numbers = {name: value for name, value in data["numbers"].items() if name != former}
        return cls(
            **{
                **data,
                "numbers": numbers,
                "parts": [_read_part(part) for part in data["parts"]],
                "errata": [Erratum(**_read_checks(part)) for part in data.get("errata", ())],
                "beyond": [Check(**part) for part in data.get("beyond", ())],
                "figures": [_read_figure(part) for part in data["figures"]],
            }
        )


def _read_checks(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read the printed and the corrected check of a part or an erratum."""
    corrected = data.get("corrected")
    checks = {"printed": Check(**data["printed"]), "corrected": corrected and Check(**corrected)}
    return {**data, **checks}


def _read_part(data: Mapping[str, Any]) -> Part:
    readings = {name: Check(**check) for name, check in data.get("other_readings", {}).items()}
    weaker = data.get("weaker")
    values = {
        **_read_checks(data),
        "other_readings": readings,
        "weaker": weaker and Check(**weaker),
    }
    return Part(**{each.name: values[each.name] for each in fields(Part) if each.name in values})


def _read_figure(data: Mapping[str, Any]) -> Figure:
    axes = {name: Axis(**data[name]) for name in ("x", "y", "colour") if data[name]}
    return Figure(**{**data, **axes, "band": tuple(data["band"]) if data["band"] else None})


def _describe(printed: Check, corrected: Check | None, weaker: Check | None = None) -> str:
    text = f"{printed.statement}: {printed.outcome}, {printed.summary}."
    if corrected is not None:
        text += f" Corrected to {corrected.statement}: {corrected.outcome}, {corrected.summary}."
    if weaker is not None:
        text += f" Weaker: {weaker.statement}: {weaker.outcome}, {weaker.summary}."
    return text.replace("\n", "; ")


def _require_plain_data(where: str, value: Any) -> None:
    """Refuse values that JSON cannot hold, and numbers that are not finite."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, expected a string")
            _require_plain_data(f"{where}.{key}", part)
    elif isinstance(value, list | tuple):
        for k, part in enumerate(value):
            _require_plain_data(f"{where}[{k}]", part)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}, not finite: say in words what has no value")
    elif not isinstance(value, str | int | bool | None):
        raise TypeError(f"{where} is a {type(value).__name__}, expected a number or a string")
