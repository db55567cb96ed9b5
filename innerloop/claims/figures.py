"""Figures of a claim: a plot of tidy rows, and the usual line figure in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Value = float | int | str | bool | None
Rows = Sequence[Mapping[str, Value]]

MAX_ROWS = 5000
"""Most rows of one figure: a page of a hundred claims must stay small."""


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


def draw_lines(title: str, rows: Rows, x: str, y: str, by: str = "", **more: Any) -> Figure:
    """Draw lines: `x`, `y` and `by` (one line per value) are columns, "column: title" to name them.

    `log` holds the axes with a logarithmic scale ("x", "y" or "xy"); `band`, `rules`, `panel` and
    `caption` are those of `Figure`.
    """
    log = more.pop("log", "")
    axes = {}
    for name, text in (("x", x), ("y", y)):
        column, _, words = text.partition(": ")
        scale: Literal["linear", "log"] = "log" if name in log else "linear"
        axes[name] = Axis(field=column, title=words or column, scale=scale)
    column, _, words = by.partition(": ")
    colour = Axis(field=column, title=words or column, scale="category") if by else None
    return Figure(title=title, rows=rows, colour=colour, **axes, **more)
