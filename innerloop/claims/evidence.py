"""The outcome of a claim: checks of the printed statement and its correction, numbers, figures.

A verdict is never written down: it follows from the checks. Everything here is plain data that
JSON can hold; anything else is refused (a NaN is a broken check, not a result).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "holds as corrected", "fails", "undecided", "out of reach"]
Matters = Literal["result", "step", "print"]
"""What a mistake affects: the source's conclusion (`result`); a formula on the way, while the
conclusion stands (`step`); or only the print, where a reader sees what is meant (`print`)."""
Value = float | int | str | bool | None
Rows = Sequence[Mapping[str, Value]]

MAX_ROWS = 5000
"""Most rows of one figure: a page of a hundred claims must stay small."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The test of one form of a statement."""

    statement: str
    """The form that was tested, with its symbols."""
    passed: bool | None
    """None where the data cannot decide: an interval that straddles the claim."""
    summary: str
    """How many cases, of which sizes, with which margin."""
    counterexample: str = ""
    """The smallest one found, so that a reader can check it by hand or in three lines of NumPy."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One statement of a claim: its printed form, and a correction where that form fails."""

    printed: Check
    corrected: Check | None = None
    matters: Matters = "step"
    """What is affected if the printed form does not hold."""

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
    """A plot of tidy rows. `line` joins points, `heat` fills cells by `colour`."""

    title: str
    rows: Rows
    x: Axis
    y: Axis
    mark: Literal["line", "point", "bar", "heat"] = "line"
    colour: Axis | None = None
    panel: str | None = None
    """Column with one panel per value."""
    band: tuple[str, str] | None = None
    """Columns with the lower and upper end of an interval around y, or around x where y is a
    category."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """Reference levels of y, by name."""
    caption: str = ""

    def __post_init__(self) -> None:
        columns = [self.x.field, self.y.field, *(self.band or ())]
        columns += [self.colour.field] if self.colour else []
        columns += [self.panel] if self.panel else []
        if not 0 < len(self.rows) <= MAX_ROWS:
            count = len(self.rows)
            raise ValueError(f"figure {self.title!r} has {count} rows, expected 1 to {MAX_ROWS}")
        if "count" in columns:
            raise ValueError(
                f"figure {self.title!r} has a column 'count', which Vega reserves: rename it"
            )
        logarithmic = [axis.field for axis in (self.x, self.y) if axis.scale == "log"]
        for row in self.rows:
            if bad := [name for name in logarithmic if not _is_positive(row.get(name))]:
                raise ValueError(
                    f"figure {self.title!r}: {bad[0]} has a logarithmic axis, expected a positive "
                    f"number, got {row[bad[0]]!r}"
                )
            if missing := [name for name in columns if name not in row]:
                raise ValueError(f"figure {self.title!r}: a row lacks {', '.join(missing)}")


def _is_positive(value: Value) -> bool:
    return isinstance(value, int | float) and value > 0


_VERDICTS_WORST_FIRST: tuple[Verdict, ...] = ("fails", "undecided", "holds as corrected", "holds")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The outcome of a claim: parts with their checks, numbers to quote, a table and figures."""

    parts: Sequence[Part] = ()
    numbers: Mapping[str, Value] = field(default_factory=dict)
    table: Rows = ()
    figures: Sequence[Figure] = ()
    out_of_reach: str = ""
    """Why the claim cannot be tested here; set only where there are no parts."""

    def __post_init__(self) -> None:
        if bool(self.parts) == bool(self.out_of_reach):
            raise ValueError("evidence needs parts, or a reason (`out_of_reach`) for having none")
        _require_plain_data("evidence", asdict(self))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the parts."""
        if self.out_of_reach:
            return "out of reach"
        found = {part.verdict for part in self.parts}
        return next(verdict for verdict in _VERDICTS_WORST_FIRST if verdict in found)

    @property
    def summary(self) -> str:
        """One paragraph with the outcome of each part."""
        if self.out_of_reach:
            return self.out_of_reach
        return " ".join(_describe_part(part) for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON data; `Evidence.from_dict` is the inverse."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evidence:
        """Rebuild the evidence from the output of `as_dict`."""

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
            for part in data["parts"]
        ]
        return cls(**{**data, "parts": parts, "figures": [figure(f) for f in data["figures"]]})


def _describe_part(part: Part) -> str:
    text = f"{part.printed.statement}: {_describe_outcome(part.printed)}, {part.printed.summary}."
    if part.corrected is not None:
        corrected = part.corrected
        text += f" Corrected to {corrected.statement}: {_describe_outcome(corrected)}, "
        text += f"{corrected.summary}."
    return text


def _describe_outcome(check: Check) -> str:
    return {True: "holds", False: "fails", None: "cannot be told"}[check.passed]


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
