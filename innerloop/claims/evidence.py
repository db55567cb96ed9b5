"""What running a claim yields: checks of what is printed and of its correction, numbers, figures.

A verdict is never written down: it follows from the checks. Everything here is plain data that
JSON can hold, and says so when it is not (a NaN is a broken check, not a result).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "holds as corrected", "fails", "undecided", "out of reach"]
Matters = Literal["result", "step", "print"]
"""What a mistake changes: what a source concludes; a formula on the way there, while the conclusion
stands; or only the print, where a reader sees what is meant."""
Value = float | int | str | bool | None
Rows = Sequence[Mapping[str, Value]]

MOST_ROWS = 5000
"""A figure shows no more, and a page of a hundred claims must stay small."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One form of a statement, put to the test."""

    statement: str
    """The form that was tested, with its symbols."""
    passed: bool | None
    """None where it cannot be told: an interval that straddles the claim."""
    summary: str
    """How often, on what sizes, with what margin."""
    counterexample: str = ""
    """The smallest found, so that a reader can check it by hand or in three lines of NumPy."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A statement that a claim makes: its printed form, and a correction where that one fails."""

    printed: Check
    corrected: Check | None = None
    matters: Matters = "step"
    """What it changes if the printed form does not hold."""

    @property
    def verdict(self) -> Verdict:
        if self.printed.passed is not False:
            return "holds" if self.printed.passed else "undecided"
        if self.corrected is None or self.corrected.passed is False:
            return "fails"
        return "holds as corrected" if self.corrected.passed else "undecided"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A column of a figure's rows, with its title and unit."""

    field: str
    title: str
    scale: Literal["linear", "log", "category"] = "linear"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What to draw from tidy rows. `line` joins points, `heat` fills cells by `colour`."""

    title: str
    rows: Rows
    x: Axis
    y: Axis
    mark: Literal["line", "point", "bar", "heat"] = "line"
    colour: Axis | None = None
    panel: str | None = None
    """A column whose values get a panel each."""
    band: tuple[str, str] | None = None
    """Columns with the lower and upper end of an interval around y, or around x where y is a
    category."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """Levels of y to compare with, by name."""
    caption: str = ""

    def __post_init__(self) -> None:
        columns = [self.x.field, self.y.field, *(self.band or ())]
        columns += [self.colour.field] if self.colour else []
        columns += [self.panel] if self.panel else []
        if not 0 < len(self.rows) <= MOST_ROWS:
            raise ValueError(f"a figure has 1 to {MOST_ROWS} rows, {self.title!r} {len(self.rows)}")
        if "count" in columns:
            raise ValueError("Vega groups lines by a column of its own called count: name it else")
        logarithmic = [axis.field for axis in (self.x, self.y) if axis.scale == "log"]
        for row in self.rows:
            if bad := [name for name in logarithmic if not _positive(row.get(name))]:
                raise ValueError(f"{bad[0]} of {self.title!r} has no logarithm: {row[bad[0]]!r}")
            if missing := [name for name in columns if name not in row]:
                raise ValueError(f"a row of {self.title!r} lacks {', '.join(missing)}")


def _positive(value: Value) -> bool:
    return isinstance(value, int | float) and value > 0


_ORDER: tuple[Verdict, ...] = ("fails", "undecided", "holds as corrected", "holds")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The outcome of a claim: parts with their checks, numbers to quote, a table and figures."""

    parts: Sequence[Part] = ()
    numbers: Mapping[str, Value] = field(default_factory=dict)
    table: Rows = ()
    figures: Sequence[Figure] = ()
    out_of_reach: str = ""
    """Why it cannot be tested here; only where there is nothing to test."""

    def __post_init__(self) -> None:
        if bool(self.parts) == bool(self.out_of_reach):
            raise ValueError("evidence has parts, or a reason why there are none")
        _check_plain("evidence", asdict(self))

    @property
    def verdict(self) -> Verdict:
        """The worst of the parts'."""
        if self.out_of_reach:
            return "out of reach"
        found = {part.verdict for part in self.parts}
        return next(verdict for verdict in _ORDER if verdict in found)

    @property
    def summary(self) -> str:
        """One paragraph: each part's outcome."""
        if self.out_of_reach:
            return self.out_of_reach
        return " ".join(_told(part) for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it; `Evidence.of` is the way back."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Evidence:
        """The evidence that `as_dict` told."""

        def check(part: Mapping[str, Any] | None) -> Check | None:
            return None if part is None else Check(**part)

        def figure(part: Mapping[str, Any]) -> Figure:
            axes = {name: Axis(**part[name]) for name in ("x", "y", "colour") if part[name]}
            band = tuple(part["band"]) if part["band"] else None
            return Figure(**{**part, **axes, "band": band})

        parts = [
            Part(
                printed=Check(**part["printed"]),
                corrected=check(part["corrected"]),
                matters=part["matters"],
            )
            for part in told["parts"]
        ]
        return cls(**{**told, "parts": parts, "figures": [figure(f) for f in told["figures"]]})


def _told(part: Part) -> str:
    told = f"{part.printed.statement}: {_outcome(part.printed)}, {part.printed.summary}."
    if part.corrected is not None:
        corrected = part.corrected
        told += f" Corrected to {corrected.statement}: {_outcome(corrected)}, {corrected.summary}."
    return told


def _outcome(check: Check) -> str:
    return {True: "holds", False: "fails", None: "cannot be told"}[check.passed]


def _check_plain(where: str, value: Any) -> None:
    """Refuse what JSON cannot hold, and numbers that are none."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, keys are words")
            _check_plain(f"{where}.{key}", part)
    elif isinstance(value, list | tuple):
        for k, part in enumerate(value):
            _check_plain(f"{where}[{k}]", part)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}: say in words what has no finite value")
    elif not isinstance(value, str | int | bool | None):
        raise TypeError(f"{where} is a {type(value).__name__}, expected a number or a word")
