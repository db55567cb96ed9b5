"""Draw the registers and blocks of a construction, and its answers after each step."""

from __future__ import annotations

import re
from html import escape
from typing import Any

ROW, COLUMN, TOP, LEFT = 24, 104, 46, 96


def draw_blocks(description: dict[str, Any]) -> str:
    """Draw which registers each block reads (circles) and writes (arrows)."""
    names = [each["name"] for each in description["registers"]]
    place = {name: TOP + 14 + ROW * k for k, name in enumerate(names)}
    bottom = TOP + ROW * len(names) + 4
    width = LEFT + COLUMN * len(description["blocks"]) + 12
    parts = [
        f'<svg class="drawing" viewBox="0 0 {width} {bottom + 30}" width="{width}" '
        f'height="{bottom + 30}" role="img" aria-label="registers and blocks">'
    ]
    for name, y in place.items():
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{width - 8}" y1="{y}" y2="{y}" class="rail"/>')
    for k, block in enumerate(description["blocks"]):
        parts += _draw_block(block, LEFT + COLUMN * k, place, bottom)
    legend = "○ read   ▶ written   blue: attention   orange: MLP"
    parts.append(f'<text x="{LEFT}" y="{bottom + 22}" class="quiet">{legend}</text></svg>')
    return f'<div class="wide">{"".join(parts)}</div>\n'


def _draw_block(block: dict[str, Any], x: int, place: dict[str, int], bottom: int) -> list[str]:
    parts = [
        f'<text x="{x + 6}" y="16">{escape(block["section"])}</text>',
        f'<text x="{x + 6}" y="32" class="quiet">block {block["block"]}</text>',
        f'<rect x="{x + 2}" y="{TOP - 4}" width="{COLUMN - 8}" height="{bottom - TOP}" rx="5" '
        'class="box"/>',
    ]
    for kind, at in (("head", x + COLUMN // 3 - 4), ("mlp", x + 2 * COLUMN // 3 - 4)):
        lines = [line for line in block["does"] if line.startswith(kind)]
        read, written = find_registers(lines, list(place))
        touched = [place[name] for name in read | written]
        if not touched:
            continue
        ends = f'y1="{min(touched)}" y2="{max(touched)}"'
        parts.append(f'<line x1="{at}" x2="{at}" {ends} class="{kind}"/>')
        parts += [
            f'<circle cx="{at}" cy="{place[n]}" r="4" class="{kind} read"/>' for n in sorted(read)
        ]
        parts += [
            f'<path d="M{at} {place[n] - 6} l13 6 l-13 6 z" class="{kind} write"/>'
            for n in sorted(written)
        ]
    return parts


def find_registers(lines: list[str], names: list[str]) -> tuple[set[str], set[str]]:
    """Find which registers the described heads or MLP pieces read, and which they write."""
    read: set[str] = set()
    written: set[str] = set()
    for line in lines:
        text = re.sub(r"^head \d+ \([^)]*\)", "", line).removeprefix("mlp")
        if "adds" in text:
            score, _, rest = text.partition("adds")
            pairs = [piece.partition("→")[::2] for piece in rest.split(",")]
            sources = [score, *(left for left, _ in pairs)]
            targets = [right for _, right in pairs]
        else:
            pairs = re.findall(r"(.*?)(?:\+=|←)([^;]*)", text)
            targets, sources = [left for left, _ in pairs], [right for _, right in pairs]
        read |= {name for name in names for part in sources if _mentions(part, name)}
        written |= {name for name in names for part in targets if _mentions(part, name)}
    return read, written


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def draw_steps(answers: list[float], expected: list[float]) -> str:
    """Draw the distance to the last answer: a line for the transformer, circles for the
    algorithm."""
    width, height, left, low = 460, 170, 54, 26
    top = max(*answers, *expected, 1e-300)

    def at(k: int, value: float) -> tuple[float, float]:
        x = left + (width - left - 14) * k / (len(expected) - 1)
        return round(x, 1), round(height - low - (height - low - 12) * value / top, 1)

    line = " ".join(f"{x},{y}" for x, y in (at(k, v) for k, v in enumerate(answers)))
    dots = [at(k, v) for k, v in enumerate(expected)]
    circles = "".join(f'<circle cx="{x}" cy="{y}" r="4.5" class="mlp read"/>' for x, y in dots)
    stride = -(-len(expected) // 13)
    ticks = "".join(
        f'<text x="{at(k, 0)[0]}" y="{height - 8}" text-anchor="middle" class="quiet">{k}</text>'
        for k in range(0, len(expected), stride)
    )
    marks = "".join(
        f'<text x="{left - 8}" y="{at(0, v)[1] + 4}" text-anchor="end" class="quiet">{v:.2g}</text>'
        for v in (0.0, top)
    )
    return (
        f'<div class="wide"><svg class="drawing" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="distance to the last answer, step by step">'
        f'<line x1="{left}" x2="{width - 8}" y1="{height - low}" y2="{height - low}" class="rail"/>'
        f'<polyline points="{line}" class="head"/>{circles}{ticks}{marks}</svg></div>\n'
    )
