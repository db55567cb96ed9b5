"""Write small drawings as SVG text, in the colours of a light or a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Theme(NamedTuple):
    """Colours of a page."""

    paper: str
    ink: str
    quiet: str
    rule: str
    blue: str
    orange: str
    green: str


THEMES = {
    "light": Theme("#fbfaf7", "#1b1b1b", "#5c5c5c", "#dddad2", "#2f5fd0", "#b4560f", "#2a7d4f"),
    "dark": Theme("#14161a", "#ececec", "#a4a7ad", "#30343c", "#8fb0ff", "#f0a35e", "#6fd19b"),
}
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def page(width: float, height: float, theme: Theme, title: str, parts: Sequence[str]) -> str:
    """Put parts on a rounded page, with a title for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="{FONT}" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height}" rx="12" fill="{theme.paper}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(
    x: float,
    y: float,
    words: str,
    colour: str,
    *,
    size: float = 13,
    bold: bool = False,
    anchor: str = "start",
) -> str:
    """Write a line of text."""
    weight = ' font-weight="700"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
        f"{weight}>{escape(words)}</text>"
    )


def line(
    points: Sequence[tuple[float, float]], colour: str, width: float = 2, dash: str = ""
) -> str:
    """Draw a line through points."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f'{dashes} stroke-linejoin="round"/>'
    )


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> str:
    """Draw a rounded box."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def curve(
    values: Sequence[float],
    area: tuple[float, float, float, float],
    *,
    log: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> list[tuple[float, float]]:
    """Place values, evenly spaced, in an area (left, top, width, height)."""
    left, top, width, height = area
    scale = [math.log10(max(v, 1e-300)) for v in values] if log else list(values)
    least = min(scale) if low is None else (math.log10(low) if log else low)
    most = max(scale) if high is None else (math.log10(high) if log else high)
    return [
        (
            left + width * k / max(len(scale) - 1, 1),
            top + height * (1 - (min(max(v, least), most) - least) / (most - least)),
        )
        for k, v in enumerate(scale)
    ]
