"""A picture of a program as SVG: registers are rows, blocks are columns, with the author's names.

Heads of a block that read and write the same registers are drawn as one stroke with their number
above it; so are hidden units. Marks distinguish a head's score from its value, and registers that
are written from those that are cleared. A bar covers the blocks in which a temporary is alive. The
lines of the program that a block runs are printed below it. Blocks that do not fit side by side
continue in a further band below.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from html import escape
from typing import NamedTuple

from innerloop.language.columns import Column, Stroke, describe_program
from innerloop.language.construction import ProgramConstruction

WIDTH = 1040
"""Width of the report's page in pixels; if the blocks are wider, they continue below."""
ROW, HEADER, LETTER, MONO = 22, 74, 6.6, 6.35
"""Height of a row, height of the part above the rows, and widths of letters, in pixels."""
NARROWEST, WIDEST = 168, 330
"""The smallest and largest width of a column."""
SLOT, GAP = 11, 16
"""The distances between the marks of a stroke, and between strokes."""
PAPER, RAIL, FRAME, ALIVE = "#ffffff", "#dddddd", "#bbbbbb", "#efe9dc"
WRITE, HEAD, UNIT, ANSWER = "#c0392b", "#1f6f8b", "#8a6d1f", "#666666"
COLOURS = {"head": HEAD, "unit": UNIT, "answer": ANSWER}
ROLES = ("query", "key", "value", "read", "write", "clear")
"""The order of the marks, from left to right, if one stroke uses a register in several ways."""
LEGEND = (
    *(("query", "score: of me"), ("key", "score: of j"), ("value", "value of j")),
    *(("read", "read by hidden units"), ("write", "written"), ("clear", "cleared")),
    *(("alive", "a temporary is alive"), ("head", "heads"), ("unit", "hidden units")),
)


class _Band(NamedTuple):
    """Columns that are drawn side by side: their positions, and the rows that they use."""

    columns: list[tuple[Column, float, float]]
    rows: list[str]


def draw_program(construction: ProgramConstruction) -> str:
    """Draw the blocks of a program; of steps that differ only in their numbers, draw the first."""
    registers, columns = describe_program(construction)
    used = [name for column in columns for name in column.list_names()]
    rows = list(dict.fromkeys([*registers, *used]))
    left = min(24 + LETTER * max(map(len, rows)), 210)
    bands = _arrange(columns, rows, left)
    width = max([560.0, *(x + w for band in bands for _, x, w in band.columns)]) + 8
    canvas, y = _Canvas(), 4.0
    for band in bands:
        y = _render_band(canvas, band, registers, left, width, y)
    y = _render_legend(canvas, width, y + 6)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" '
        f'viewBox="0 0 {width:.0f} {y:.0f}" font-family="sans-serif" font-size="12" role="img">'
    )
    title = f"<title>{escape(construction.definition.name)}: registers and blocks</title>"
    paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *canvas.render(), "</svg>", ""])


def _arrange(columns: list[Column], rows: list[str], left: float) -> list[_Band]:
    """Distribute the columns evenly over bands, and widen them to fill the width."""
    room = WIDTH - left - 8
    widths = [_find_width(column) for column in columns]
    fewest, filled = 1, 0.0
    for width in widths:
        fewest, filled = (fewest, filled + width) if filled + width <= room else (fewest + 1, width)
    most = -(-len(columns) // fewest)
    groups: list[list[int]] = [[]]
    for index in range(len(columns)):
        filled = sum(widths[i] for i in groups[-1])
        if groups[-1] and (len(groups[-1]) >= most or filled + widths[index] > room):
            groups.append([])
        groups[-1].append(index)
    touched = {name for column in columns for name in column.list_names()}
    bands = []
    for number, group in enumerate(groups):
        spare = max(0.0, room - sum(widths[i] for i in group)) / len(group)
        placed, x = [], left
        for i in group:
            width = min(widths[i] + spare, max(widths[i], _find_longest(columns[i])))
            placed.append((columns[i], x, width))
            x += width
        names = {name for i in group for name in columns[i].list_names()}
        names |= set() if number else {name for name in rows if name not in touched}
        bands.append(_Band(placed, [name for name in rows if name in names]))
    return bands


def _find_width(column: Column) -> float:
    """Return a column's width, which fits its strokes, its title, and half of its longest line."""
    strokes = 28 + sum(_measure(stroke) + GAP for stroke in column.strokes)
    titles = 20 + LETTER * max(map(len, column.titles))
    text = min(_find_longest(column) / 2 + 8, WIDEST)
    return max(NARROWEST, strokes, titles, text)


def _find_longest(column: Column) -> float:
    return 24 + MONO * max((len(line) for line in column.lines), default=0)


def _measure(stroke: Stroke) -> float:
    most = max((len(roles) for roles in stroke.marks.values()), default=1)
    return max(SLOT * most, LETTER * len(stroke.label))


def _render_band(
    canvas: _Canvas, band: _Band, registers: list[str], left: float, width: float, top: float
) -> float:
    place = {name: top + HEADER + 12 + ROW * index for index, name in enumerate(band.rows)}
    bottom = top + HEADER + ROW * len(band.rows) + 4
    end = max(x + w for _, x, w in band.columns)
    for name, y in place.items():
        canvas.write(8, y + 4, name, "bold" if name in registers else "")
        canvas.add("rail", f"M{left:.0f} {y:.0f}H{end - 8:.0f}")
    deepest = bottom
    for column, x, w in band.columns:
        for index, title in enumerate(column.titles):
            canvas.write(x + 6, top + 14 + 15 * index, title, "" if index else "bold")
        frame = f"M{x + 2:.0f} {top + HEADER - 22:.0f}h{w - 8:.0f}V{bottom:.0f}h{8 - w:.0f}z"
        canvas.add("frame", frame)
        _render_strokes(canvas, column, x, w, place, top + HEADER - 8, x == left)
        y = bottom + 2
        for line in column.lines:
            deep = "    " if line.startswith("↳") else "  "
            letters = int((w - 14) / MONO)
            for part in textwrap.wrap(line, letters, subsequent_indent=deep) or [line]:
                y += 14
                indent = (len(part) - len(part.lstrip())) * MONO
                canvas.write(x + 6 + indent, y, part.lstrip(), "mono")
        deepest = max(deepest, y)
    return deepest + 20


def _render_strokes(
    canvas: _Canvas,
    column: Column,
    x: float,
    w: float,
    place: dict[str, float],
    top: float,
    first: bool,
) -> None:
    """Draw the marks of heads and units on registers, and the bars of temporaries."""
    spare = max(0.0, w - 28 - sum(_measure(s) + GAP for s in column.strokes))
    at, centres = x + 14 + spare / 2, dict[int, float]()
    for index, stroke in enumerate(column.strokes):
        centre = at + _measure(stroke) / 2
        centres[index] = centre
        at += _measure(stroke) + GAP
        rows = [place[name] for name in stroke.marks]
        colour = stroke.kind
        canvas.add(f"{colour} line", f"M{centre:.0f} {min(rows):.0f}V{max(rows):.0f}")
        canvas.write(centre, top, stroke.label, f"{colour} label")
        for name, roles in stroke.marks.items():
            ordered = [role for role in ROLES if role in roles]
            for slot, role in enumerate(ordered):
                shift = SLOT * (slot - (len(ordered) - 1) / 2)
                canvas.mark(role, colour, centre + shift, place[name])
    for name, (begins, ends) in column.alive.items():
        start = x + 2 - 8 * (not first) if begins is None else centres[begins]
        stop = x + w - 6 if ends is None else centres[ends]
        if name in place and stop > start:
            canvas.add("alive", f"M{start:.0f} {place[name]:.0f}H{stop:.0f}")


def _render_legend(canvas: _Canvas, width: float, y: float) -> float:
    canvas.write(8, y + 4, "bold: registers, which stay from step to step; below them temporaries")
    x, y = 14.0, y + 18
    for role, words in LEGEND:
        if x + 26 + LETTER * len(words) > width:
            x, y = 14.0, y + 18
        if role == "alive":
            canvas.add("alive", f"M{x:.0f} {y:.0f}h16")
            x += 14
        elif role in COLOURS:
            canvas.add(f"{role} line", f"M{x:.0f} {y - 7:.0f}v14")
        else:
            canvas.mark(role, "unit" if role == "read" else "head", x, y)
        canvas.write(x + 12, y + 4, words)
        x += 30 + LETTER * len(words)
    return y + 16


class _Canvas:
    """Collects paths by their style, and text; all shapes of one style become one path."""

    looks = {
        "alive": f'fill="none" stroke="{ALIVE}" stroke-width="10" stroke-linecap="round"',
        "rail": f'fill="none" stroke="{RAIL}"',
        "frame": f'fill="none" stroke="{FRAME}" stroke-linejoin="round"',
        **{f"{k} line": f'fill="none" stroke="{c}" stroke-width="2"' for k, c in COLOURS.items()},
        **{
            f"{k} dot": f'fill="none" stroke="{c}" stroke-width="9" stroke-linecap="round"'
            for k, c in COLOURS.items()
        },
        "hole": f'fill="none" stroke="{PAPER}" stroke-width="5" stroke-linecap="round"',
        **{f"{k} box": f'fill="{c}"' for k, c in COLOURS.items()},
        "write": f'fill="{WRITE}"',
        "clear": f'fill="none" stroke="{WRITE}" stroke-width="2"',
    }
    styles = {
        "bold": ' font-weight="bold"',
        "mono": ' font-family="monospace" font-size="10.5"',
        **{
            f"{k} label": f' font-size="11" text-anchor="middle" fill="{c}"'
            for k, c in COLOURS.items()
        },
    }

    def __init__(self) -> None:
        self.paths: dict[str, list[str]] = defaultdict(list)
        self.texts: list[str] = []

    def add(self, look: str, path: str) -> None:
        self.paths[look].append(path)

    def mark(self, role: str, kind: str, x: float, y: float) -> None:
        """Draw the mark of a stroke on a register."""
        if role in ("query", "key", "read"):
            self.add(f"{kind} dot", f"M{x:.0f} {y:.0f}h0")
            if role == "query":
                self.add("hole", f"M{x:.0f} {y:.0f}h0")
        elif role == "value":
            self.add(f"{kind} box", f"M{x - 4:.0f} {y - 4:.0f}h8v8h-8z")
        elif role == "write":
            self.add("write", f"M{x - 5:.0f} {y - 6:.0f}l11 6l-11 6z")
        else:
            self.add("clear", f"M{x - 4:.0f} {y - 4:.0f}l8 8m0 -8l-8 8")

    def write(self, x: float, y: float, words: str, style: str = "") -> None:
        self.texts.append(
            f'<text x="{x:.0f}" y="{y:.0f}"{self.styles.get(style, "")}>{escape(words)}</text>'
        )

    def render(self) -> list[str]:
        """Return all paths, bars first and marks last, then the text."""
        paths = [
            f'<path d="{"".join(self.paths[look])}" {style}/>'
            for look, style in self.looks.items()
            if look in self.paths
        ]
        return [*paths, *self.texts]
