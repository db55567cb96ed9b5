"""Render the pictures at the top of the page, one for each family of claims."""

from __future__ import annotations

from collections.abc import Mapping

from innerloop.report.claims import name_figure
from innerloop.report.escaping import escape
from innerloop.report.packing import Pack, render_box
from innerloop.report.text import typeset
from innerloop.report.verdicts import Outcomes
from innerloop.surveys.data import ReportData

FAMILIES = {
    "yang2025.fu.ill-conditioned": ("A trained network beside the algorithms", 1),
    "liu2025.figure-1a": ("Sparse recovery", 1),
    "gatmiry2024.figure-3": ("Looped transformers", 1),
    "yang2025.he.better-than-power": ("Principal components", 1),
    "yang2025.he.minimax": ("Clustering", 1),
    "yang2025.jin.prompt-length": ("Mixtures of regressions", 1),
    "ahn2023.figure-2": ("What training finds", 1),
    "ahn2023.theorem-1": ("The optimal weights", 1),
}
"""The claim whose figure represents each family, with the name of the family and of the figure."""

SHOWN = 2
"""The number of families that are visible at once; the others are in a section to open."""


def render_pictures(data: ReportData, drawn: Mapping[str, str], pack: Pack) -> str:
    """Render the report's own figures, and then one for each family of claims.

    The first picture is not compressed, so that it is visible at once and without scripts.
    """
    pictures = [
        _render_picture(
            "Error after each layer",
            render_box(drawn["layers"], "Error after each layer"),
            data.convergence_setting,
        )
        if data.convergence
        else "",
        _render_picture(
            "Regret over time",
            pack.render_plot(drawn["regret"], "Regret over time"),
            f"{describe_agreement(data.regret)} {data.regret_setting}",
        )
        if data.regret
        else "",
    ]
    families = _list_families(data.outcomes, drawn, pack)
    more = "".join(families[SHOWN:])
    folded = (
        '<details class="fold more"><summary><h3>More pictures '
        f"<small>{len(families) - SHOWN}</small></h3></summary>"
        f'<div class="pictures">{more}</div></details>'
    )
    return "".join([*pictures, *families[:SHOWN], folded if more else ""])


def _list_families(outcomes: Outcomes, drawn: Mapping[str, str], pack: Pack) -> list[str]:
    """Render one figure for each family whose claim was checked."""
    checked = {outcome["id"]: outcome for outcome in outcomes if outcome["evidence"]}
    pictures = []
    for id, (family, number) in FAMILIES.items():
        name = name_figure(id, number)
        if id not in checked or name not in drawn:
            continue
        figure = checked[id]["evidence"]["figures"][number - 1]
        link = (
            f'<a href="#{escape(id)}">{escape(checked[id]["reference"]["short"])}, {escape(id)}</a>'
        )
        caption = f"{link}: {escape(checked[id]['label'])}. {typeset(figure['caption'])}"
        plot = pack.render_plot(drawn[name], figure["title"])
        pictures.append(_render_figure(family, plot, caption))
    return pictures


def _render_picture(title: str, plot: str, text: str) -> str:
    """Render a figure of the report, with the commands that made it in a section to open."""
    more = f"<details><summary>Setting</summary><p>{escape(text)}</p></details>"
    return _render_figure(title, plot, more, "wide")


def _render_figure(title: str, plot: str, caption: str, size: str = "") -> str:
    return (
        f'<figure class="picture {size}"><h3>{escape(title)}</h3>{plot}'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def describe_agreement(regret: list[dict]) -> str:
    """Describe on how many actions each transformer agrees with its policy."""
    counts = {row["construction"]: (row["same"], row["choices"]) for row in regret}
    shares = (f"{same:,} of {total:,} with {name}" for name, (same, total) in counts.items())
    return f"Actions on which transformer and policy agree: {', '.join(shares)}."
