"""Plot training curves: the loss and each measure of several runs, in one panel each."""

from __future__ import annotations

import re
from typing import Any

import altair as alt

PANEL, PANEL_HEIGHT, COLUMNS = 380, 240, 2
MAX_PANELS = 12
"""Measures that are drawn beside the loss; the CSV files have all."""
UNDRAWN = ("step", "seconds", "learning_rate", "batch_loss", "steps")
"""Columns of a history that do not contain measures."""


def list_measures(runs: list[dict[str, Any]]) -> list[str]:
    """List the measures in the histories of runs, with the loss first."""
    names = dict.fromkeys(name for run in runs for row in run["history"] for name in row)
    return ["loss", *(name for name in names if name not in ("loss", *UNDRAWN))]


def plot_runs(
    runs: list[dict[str, Any]], measures: list[str] | None = None, title: str = ""
) -> alt.ConcatChart:
    """Plot measures of runs against the step; runs of one group share a colour.

    A run has a `name`, a `group` and a `history`.
    """
    chosen = (measures or list_measures(runs))[:MAX_PANELS]
    groups = list(dict.fromkeys(run["group"] for run in runs))
    rows = [
        {"run": run["name"], "group": run["group"], "step": row["step"], f"m{k}": row[name]}
        for run in runs
        for row in run["history"]
        for k, name in enumerate(chosen)
        if name in row
    ]
    panels = [_plot_panel(f"m{k}", name, rows, groups) for k, name in enumerate(chosen)]
    return (
        alt.concat(*panels, data=alt.Data(values=rows), columns=COLUMNS)
        .resolve_scale(color="shared")
        .properties(title=_make_plain(title) or "Trainings")
    )


def _plot_panel(field: str, name: str, rows: list[dict[str, Any]], groups: list[str]) -> alt.Chart:
    """Plot one measure of all runs against the step."""
    values = [row[field] for row in rows if field in row]
    scale = "log" if values and min(values) > 0 and max(values) > 10 * min(values) else "linear"
    legend = alt.Legend(orient="top", labelLimit=300, columns=3, symbolLimit=30)
    points = alt.OverlayMarkDef(size=16) if len(values) <= 2000 else False
    return (
        alt.Chart()
        .mark_line(point=points, strokeWidth=1.5)
        .transform_filter(f"isValid(datum.{field})")
        .encode(
            alt.X("step:Q", title="step of the optimiser", axis=alt.Axis(tickCount=5)),
            alt.Y(f"{field}:Q", title=_make_plain(name)).scale(type=scale, zero=False),
            alt.Color("group:N", title=None, sort=groups, legend=legend),
            alt.Detail("run:N"),
            tooltip=["run:N", "step:Q", alt.Tooltip(f"{field}:Q", format=".4~g", title="value")],
        )
        .properties(width=PANEL, height=PANEL_HEIGHT)
    )


def _make_plain(text: str) -> str:
    """Remove characters that Vega's expressions do not accept in a title."""
    return re.sub(r"[^\w .,:;()\[\]+*/^=|%−≥≤-]+", " ", text)
