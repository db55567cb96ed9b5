"""Colours of the report's figures in light and dark mode.

A figure is drawn with the light colours. On the page, each colour is replaced by a name. The style
sheet `report.css` defines the colour of each name in light and in dark mode.
"""

from __future__ import annotations

import re
from typing import Any

INK, QUIET, LINE, BAD = "#1c1b19", "#68645c", "#e5e1d8", "#b3261e"
SERIES = (
    *("#2f5fd0", "#d9622b", "#1d7a44", "#8a4fb0", "#a87800"),
    *("#0d7f8c", "#c2367a", "#6d5a4a", "#5b6b8c", "#7a8b1f"),
)
"""Colours of the series of a figure; colour-blind people can distinguish the first six."""

VARIABLES = {
    **{INK: "--ink", QUIET: "--quiet", LINE: "--line", BAD: "--bad"},
    **{colour: f"--s{k}" for k, colour in enumerate(SERIES, 1)},
}
"""The name on the page of each colour."""

_COLOUR = re.compile("|".join(VARIABLES))

_DIAGRAM = {
    **{"#ffffff": "--card", "#dddddd": "--line", "#bbbbbb": "--line", "#efe9dc": "--line"},
    **{"#c0392b": "--bad", "#1f6f8b": "--s6", "#8a6d1f": "--s5", "#666666": "--quiet"},
}
"""Colours of the diagrams of programs, which `innerloop.language.diagram` draws."""

FONT = "Arial, Helvetica, Liberation Sans, sans-serif"
"""The font of figures; the page's style sheet has it too."""

CONFIG: dict[str, Any] = {
    "aria": False,
    "background": None,
    "font": FONT,
    "axis": {
        **{"labelColor": QUIET, "titleColor": INK, "gridColor": LINE, "domainColor": QUIET},
        **{"tickColor": QUIET, "labelFontSize": 11.5, "titleFontSize": 12.5},
        **{"titleFontWeight": "normal", "titlePadding": 8},
    },
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12.5},
    "legend": {
        **{"labelColor": INK, "titleColor": QUIET, "labelFontSize": 12, "titleFontSize": 12},
        **{"titleFontWeight": "normal", "columnPadding": 34},
    },
    "title": {"color": INK, "fontSize": 13.5, "fontWeight": 600, "subtitleColor": QUIET},
    "view": {"stroke": None},
    "range": {"category": list(SERIES)},
    "mark": {"color": SERIES[0]},
    "text": {"color": QUIET},
}
"""Settings of every figure on the page."""


def name_diagram_colours(svg: str) -> str:
    """Replace the colours of a program's diagram by their names."""
    for colour, name in _DIAGRAM.items():
        svg = svg.replace(f'"{colour}"', f'"var({name})"')
    return svg.replace("<svg ", '<svg fill="var(--ink)" ', 1)


def name_colours(svg: str) -> str:
    """Replace the light colours by their names, which the page resolves for light and dark."""
    return _COLOUR.sub(lambda match: f"var({VARIABLES[match[0]]})", svg)
