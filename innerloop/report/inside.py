"""Plot the answers, states and interventions that were measured inside a model, with controls."""

from __future__ import annotations

from typing import Any

import altair as alt

from innerloop.identification.inside.report import AGREEMENT, Inside
from innerloop.surveys.data import Rows

PANELS = ("answers", "state", "intervention")
SERIES = {
    "the model": "#111111",
    "prompt alone": "#54a24b",
    "random network": "#f58518",
    "other prompts' states": "#b279a2",
    "random directions": "#4c78a8",
}
TITLES = {
    "answers": "share of the model's answers",
    "state": "R² of the read-out",
    "intervention": "effect on the answers",
}


def draw_inside(inside: Inside, title: str | None = None) -> alt.HConcatChart:
    """Draw the three measurements of each layer beside their controls.

    The measurements are the score of the answers, of the read-out of the algorithm's state, and of
    the intervention. A control repeats a measurement on a random network, with the states of other
    prompts, or with a rotated change. If a state has several tensors, the one with the lowest
    read-out score is drawn. Numbers below 0 are drawn at 0.
    """
    return (
        draw_panels(inside)
        .properties(title=alt.TitleParams(title or inside.verdict, anchor="start"))
        .configure_legend(orient="bottom")
    )


def draw_panels(inside: Inside) -> alt.HConcatChart:
    """Draw only the panels, for use in a larger figure."""
    rows = collect_rows(inside)
    names = [name for name in SERIES if any(row["series"] == name for row in rows)]
    colours = alt.Scale(domain=names, range=[SERIES[name] for name in names])
    return alt.hconcat(*(_draw_panel(panel, rows, colours) for panel in PANELS))


def collect_rows(inside: Inside) -> Rows:
    """Collect one row per layer, panel and series."""
    rows: list[dict[str, Any]] = []

    def add(layer: int, panel: str, **series: float) -> None:
        rows.extend(
            {
                "layer": layer,
                "panel": panel,
                "series": name.replace("_", " "),
                "value": min(max(value, 0.0), 1.0),
                "exact": value,
            }
            for name, value in series.items()
        )

    for layer in inside.layers:
        add(layer.layer, "answers", the_model=layer.answers)
        if layer.readings:
            worst = min(layer.readings, key=lambda reading: reading.gain)
            add(layer.layer, "state", prompt_alone=worst.prompt, random_network=worst.random)
            add(layer.layer, "state", **{"other prompts' states": worst.shuffled})
            add(layer.layer, "state", the_model=worst.r2)
        if layer.intervention is not None:
            add(layer.layer, "intervention", random_directions=layer.intervention.random)
            add(layer.layer, "intervention", the_model=layer.intervention.effect)
    return rows


def _draw_panel(panel: str, rows: Rows, colours: alt.Scale) -> alt.LayerChart | alt.FacetChart:
    """Draw one kind of measurement: a line per series, with a point per layer."""
    panel_rows = [row for row in rows if row["panel"] == panel]
    base = alt.Chart(alt.Data(values=panel_rows)).encode(
        alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        alt.Y("value:Q", title=TITLES[panel], scale=alt.Scale(domain=[0, 1])),
        alt.Color("series:N", title=None, scale=colours),
        tooltip=["layer:O", "series:N", alt.Tooltip("exact:Q", format=".4f")],
    )
    lines = base.mark_line(strokeWidth=2)
    points = base.mark_point(filled=True, size=50)
    level = alt.Chart(alt.Data(values=[{"value": AGREEMENT}])).mark_rule(
        color="#999", strokeDash=[3, 3]
    )
    return alt.layer(level.encode(alt.Y("value:Q")), lines, points).properties(
        width=220, height=200, title=panel
    )
