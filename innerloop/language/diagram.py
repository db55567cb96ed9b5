"""A picture of a program as SVG: registers are rows, blocks are columns, with the author's names.

A dot is what heads or units read, an arrow's end what they write; a bar is where a temporary is
alive. Over each block stands its attention, below it the line of the program that it runs.
"""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

from innerloop.language.construction import ProgramConstruction
from innerloop.language.forms import Entry
from innerloop.language.plan import SCRATCH, Plan, PlannedBlock

ROW, COLUMN, LEFT, TOP = 26, 150, 130, 64
WRITE, HEAD, UNIT = "#c0392b", "#1f6f8b", "#8a6d1f"
MAX_TEXT = 46
"""Characters of a program's line that fit below a block."""


class _Column(NamedTuple):
    """One block: its title, and what its attention and its MLP read and write, by row."""

    part: str
    title: str
    lines: list[str]
    attention: tuple[set[str], set[str]]
    mlp: tuple[set[str], set[str]]


def draw_program(construction: ProgramConstruction) -> str:
    """Draw the blocks of a program; of steps that differ by their numbers alone, the first."""
    compiled = construction.compiled
    chosen = {"prologue": compiled.prologue, "step": compiled.steps[0]}
    chosen["read-out"] = compiled.epilogue
    columns = [
        _describe_block(part, number, plan, block)
        for part, plan in chosen.items()
        if plan is not None
        for number, block in enumerate(plan.blocks, 1)
    ]
    rows = _list_rows(construction, columns)
    return _render(construction, rows, columns)


def _list_rows(construction: ProgramConstruction, columns: list[_Column]) -> list[str]:
    """List registers, then temporaries in the order of their first use."""
    names = [name for name in construction.layout.registers if name != SCRATCH]
    used = [column.attention + column.mlp for column in columns]
    temporaries = dict.fromkeys(
        name for sets in used for names_used in sets for name in sorted(names_used)
    )
    return [*names, *(name for name in temporaries if name not in names)]


def _describe_block(part: str, number: int, plan: Plan, block: PlannedBlock) -> _Column:
    def name(entry: Entry) -> str:
        return block.labels.get(entry, entry[0])

    pairs = [(q, k) for head in block.heads for q, k in head.score]
    read = {name(e) for pair in pairs for e in pair}
    read |= {name(key) for head in block.heads for key, _ in head.value}
    written = {name(target) for head in block.heads for _, target in head.value}
    units_read = {name(e) for unit in block.units for e in unit.reads}
    units_read |= {name(e) for hinges in block.hinges for e in hinges.sources}
    units_written = {name(e) for unit in block.units for e in unit.writes}
    units_written |= {name(e) for hinges in block.hinges for e in hinges.targets}
    count = len(plan.blocks)
    title = f"{part} {number}/{count}" if count > 1 else part
    return _Column(
        title,
        _describe_size(block),
        [f"{line.number}: {line.text}" for line in block.all_lines],
        (read, written),
        (units_read, units_written),
    )


def _describe_size(block: PlannedBlock) -> str:
    heads = f"{len(block.heads)} {block.kind} head{'s' if len(block.heads) > 1 else ''}"
    parts = [f"{heads}, {block.mask}, {block.normalisation}"] if block.heads else []
    return "; ".join([*parts, *([f"{block.hidden} units"] if block.hidden else [])])


def _render(construction: ProgramConstruction, rows: list[str], columns: list[_Column]) -> str:
    place = {name: TOP + 16 + ROW * index for index, name in enumerate(rows)}
    bottom = TOP + ROW * len(rows) + 8
    lines = max((len(column.lines) for column in columns), default=0)
    width = LEFT + max(COLUMN, 260) * max(len(columns), 1) + 20
    step = (width - LEFT - 20) // max(len(columns), 1)
    height = bottom + 18 * (lines + 2) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(construction.definition.name)}: registers and blocks</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    legend = "● read, ▶ written; blue: heads, ochre: hidden units; bold: registers between steps"
    parts.append(_text(12, height - 8, legend))
    for name, y in place.items():
        parts.append(
            _text(12, y + 4, name, "bold" if name in construction.layout.registers else "")
        )
        parts.append(f'<line x1="{LEFT}" x2="{width - 20}" y1="{y}" y2="{y}" stroke="#dddddd"/>')
    for index, column in enumerate(columns):
        parts += _render_column(column, LEFT + step * index, step, place, bottom)
    return "\n".join([*parts, "</svg>", ""])


def _render_column(
    column: _Column, x: int, step: int, place: dict[str, int], bottom: int
) -> list[str]:
    parts = [
        _text(x + 8, 22, column.part, "bold"),
        _text(x + 8, 40, column.title),
        f'<rect x="{x + 4}" y="{TOP - 12}" width="{step - 12}" height="{bottom - TOP + 12}" '
        'fill="none" stroke="#bbbbbb" rx="5"/>',
    ]
    for (read, written), at, colour in (
        (column.attention, x + step // 3, HEAD),
        (column.mlp, x + 2 * step // 3, UNIT),
    ):
        touched = [place[name] for name in read | written]
        if not touched:
            continue
        parts.append(
            f'<line x1="{at}" x2="{at}" y1="{min(touched)}" y2="{max(touched)}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        parts += [f'<circle cx="{at}" cy="{place[n]}" r="4" fill="{colour}"/>' for n in read]
        parts += [
            f'<path d="M{at} {place[n] - 6} l14 6 l-14 6 z" fill="{WRITE}"/>' for n in written
        ]
    for number, line in enumerate(column.lines):
        short = line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"
        parts.append(_text(x + 8, bottom + 18 * (number + 1), short, "mono"))
    return parts


def _text(x: int, y: int, words: str, style: str = "") -> str:
    styles: dict[str, Any] = {
        "bold": ' font-weight="bold"',
        "mono": ' font-family="monospace" font-size="9"',
    }
    return f'<text x="{x}" y="{y}"{styles.get(style, "")}>{escape(words)}</text>'
