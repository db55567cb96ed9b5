"""Draw a bar of verdicts for each source, from results/verdicts.json."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tools.pictures.svg import THEMES, Theme, box, page, text

RECORDED = Path(__file__).parents[2] / "results" / "verdicts.json"
WIDTH, LEFT, ROW, RIGHT = 760, 170, 30, 90
RED = {"light": "#b3261e", "dark": "#ff8a80"}


def draw(theme: Theme) -> str:
    """Draw a bar for each source, with a part per verdict and the number of errata; then a
    legend."""
    recorded = _load()
    most = max(sum(source["verdicts"].values()) for source in recorded["sources"])
    errata = Counter(
        each["source"] for each in recorded["findings"] if each["kind"] in ("step", "print")
    )
    unit = (WIDTH - LEFT - RIGHT) / most
    parts = []
    for k, source in enumerate(recorded["sources"]):
        top = 24 + ROW * k
        parts.append(text(LEFT - 14, top + 15, source["short"], theme.ink, size=14, anchor="end"))
        left = float(LEFT)
        for verdict, count in source["verdicts"].items():
            fill, ink = _choose_colours(verdict, theme)
            width = unit * count
            parts.append(box(left, top, width - 2, 21, fill))
            parts.append(
                text(left + width / 2 - 1, top + 15, str(count), ink, bold=True, anchor="middle")
            )
            left += width
        beside = f"· {errata[source['short']]} errata"
        parts.append(text(left + 6, top + 15, beside, theme.quiet, size=12.5))
    below = 24 + ROW * len(recorded["sources"]) + 24
    left = float(LEFT)
    for verdict, count in recorded["verdicts"].items():
        words = f"{count} {verdict}"
        parts.append(box(left, below - 11, 12, 12, _choose_colours(verdict, theme)[0]))
        parts.append(text(left + 17, below, words, theme.quiet, size=12.5))
        left += 34 + 7.2 * len(words)
        if left > WIDTH - 150:
            left, below = float(LEFT), below + 22
    title = ", ".join(f"{count} {verdict}" for verdict, count in recorded["verdicts"].items())
    return page(WIDTH, below + 16, theme, f"Claims of the literature, checked: {title}", parts)


def _choose_colours(verdict: str, theme: Theme) -> tuple[str, str]:
    """Return the colour of a verdict, and the colour of the text on it."""
    name = "light" if theme == THEMES["light"] else "dark"
    colours = {"holds": theme.green, "holds as corrected": theme.orange, "fails": RED[name]}
    colours |= {"undecided": theme.quiet, "vacuous": theme.blue}
    colours |= {"not decidable from the source": theme.ink}
    return (colours[verdict], theme.paper) if verdict in colours else (theme.rule, theme.ink)


@cache
def _load() -> dict[str, Any]:
    return json.loads(RECORDED.read_text("utf-8"))
