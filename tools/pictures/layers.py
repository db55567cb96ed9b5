"""Draw how well algorithms explain the layers of recorded networks: one picture per family.

The colour of a cell shows the share of a layer's answers (row) that the algorithm explains after a
number of steps (column). A frame marks the best step of each layer and shows its share.
`tools/identify_recorded.py` computes the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tools.pictures.svg import Theme, page, text

RESULTS = Path(__file__).parents[2] / "results" / "identified"
SHOWN_STEPS = 17
CELL, ROW, LEFT, GAP, COLUMNS = 17.0, 19.0, 70.0, 66.0, 2


class Panel(NamedTuple):
    """A network of a group and an algorithm, with their titles."""

    group: str
    network: str
    candidate: str
    title: str


FAMILIES: dict[str, tuple[str, list[Panel]]] = {
    "layers-pca": (
        "PCA: the power method from a vector in the weights",
        [
            Panel("unlabelled", name, "fixed-start-iteration", title)
            for name, title in (
                ("pca-relu", "ReLU, seed 0"),
                ("pca-softmax", "softmax, seed 0"),
                ("pca-relu-seed-1", "ReLU, seed 1"),
                ("pca-softmax-seed-1", "softmax, seed 1"),
                ("pca-relu-seed-2", "ReLU, seed 2"),
                ("pca-softmax-seed-2", "softmax, seed 2"),
            )
        ],
    ),
    "layers-clusters": (
        "Clusters: EM from the centres in the prompt, and from many starts",
        [
            Panel("unlabelled", "clusters-gaussian", "em", "three clouds: EM"),
            Panel("unlabelled", "clusters-gaussian", "restarted-em", "the same: EM, many starts"),
            Panel("unlabelled", "clusters-binary", "spectral-clustering", "two clouds: spectral"),
            Panel(
                "unlabelled", "clusters-binary", "soft-spectral-clustering", "the same: soft labels"
            ),
        ],
    ),
    "layers-mixtures": (
        "Mixtures of regressions: EM, and one regression for all",
        [
            Panel("unlabelled", "clusters-regressions", "gradient-em", "EM by gradient steps"),
            Panel(
                "unlabelled",
                "clusters-regressions",
                "approximate-message-passing",
                "one regression",
            ),
        ],
    ),
    "layers-decisions": (
        "Bandits: soft LinUCB by accelerated steps",
        [
            Panel("decisions", "bernoulli", "soft-lin-ucb", "Bernoulli arms, seed 0"),
            Panel("decisions", "distilled", "soft-lin-ucb", "distilled from LinUCB, seed 0"),
        ],
    ),
}


def get_drawer(name: str) -> Callable[[Theme], str]:
    """Return the function that draws the layer-by-layer picture of one family of algorithms."""
    title, panels = FAMILIES[name]

    def draw(theme: Theme) -> str:
        """Draw the panels of the family in rows, with a title and a note."""
        parts, y, width = [], 40.0, COLUMNS * (LEFT + CELL * SHOWN_STEPS + GAP) + 12
        for k in range(0, len(panels), COLUMNS):
            drawn = [
                _draw_panel(panel, theme, 12 + j * (LEFT + CELL * SHOWN_STEPS + GAP), y)
                for j, panel in enumerate(panels[k : k + COLUMNS])
            ]
            parts += [part for body, _ in drawn for part in body]
            y += max(height for _, height in drawn)
        head = text(12, 24, title, theme.ink, size=15, bold=True)
        note = "number: share of the layer's answers that the best number of steps explains"
        foot = text(12, y + 14, note, theme.quiet, size=11)
        return page(width, y + 26, theme, title, [head, *parts, foot])

    return draw


def find_candidate(panel: Panel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find the recorded entry of a panel's network, and its candidate."""
    entry = json.loads((RESULTS / f"{panel.group}.json").read_text("utf-8"))[panel.network]
    candidate = next(each for each in entry["candidates"] if each["name"] == panel.candidate)
    return entry, candidate


def _draw_panel(panel: Panel, theme: Theme, x: float, y: float) -> tuple[list[str], float]:
    """Draw a panel at a place; return its parts and its height."""
    entry, candidate = find_candidate(panel)
    parts = [text(x, y + 16, panel.title, theme.ink, size=12, bold=True)]
    top, left = y + 26, x + LEFT
    for row, shares in enumerate(candidate["shares"]):
        below = top + ROW * row
        name = entry["layers"][row]["name"].partition(",")[0]
        parts.append(text(left - 6, below + 13, name, theme.quiet, size=11, anchor="end"))
        best = candidate["steps"][row]
        for step, share in enumerate(shares[:SHOWN_STEPS]):
            parts.append(_draw_cell(left + CELL * step, below, share, theme))
        place = left + CELL * min(best, SHOWN_STEPS - 1)
        parts.append(_draw_frame(place, below, theme))
        words = f"{shares[best]:.2f}" + (f" at {best}" if best >= SHOWN_STEPS else "")
        after = left + CELL * SHOWN_STEPS + 4
        parts.append(text(after, below + 13, words, theme.ink, size=11))
    bottom = top + ROW * len(candidate["shares"])
    for step in range(0, SHOWN_STEPS, 4):
        middle = left + CELL * (step + 0.5)
        parts.append(text(middle, bottom + 12, str(step), theme.quiet, size=10, anchor="middle"))
    parts.append(text(left + CELL * SHOWN_STEPS + 4, bottom + 12, "steps", theme.quiet, size=10))
    return parts, bottom + 24 - y


def _draw_cell(x: float, y: float, share: float, theme: Theme) -> str:
    opacity = 0.06 + 0.94 * max(share, 0.0) ** 2
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{CELL - 1:.1f}" height="{ROW - 2:.1f}" '
        f'fill="{theme.blue}" fill-opacity="{opacity:.3f}"/>'
    )


def _draw_frame(x: float, y: float, theme: Theme) -> str:
    return (
        f'<rect x="{x - 0.5:.1f}" y="{y - 0.5:.1f}" width="{CELL:.1f}" height="{ROW - 1:.1f}" '
        f'fill="none" stroke="{theme.orange}" stroke-width="2"/>'
    )
