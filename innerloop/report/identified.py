"""Plot the result of `innerloop identify`: scores as heat maps, and errors as curves."""

from __future__ import annotations

import altair as alt

from innerloop.identification.inside.report import Inside
from innerloop.report.figures import FLOOR
from innerloop.report.inside import draw_panels
from innerloop.surveys.data import Rows

PALETTE = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
"""Colours of the candidates; the model is black."""


def plot_identification(
    scores: Rows, errors: Rows, title: str, inside: Inside | None = None
) -> alt.VConcatChart:
    """Plot a heat map of scores for each candidate, and the errors as curves.

    A box marks the best match of each layer. `scores` has the columns candidate, layer, step, score
    and best; `errors` has the columns series, at and error. `inside` contains the results of
    `--inside`, which are drawn below.
    """
    names = list(dict.fromkeys(row["candidate"] for row in scores))
    maps = alt.concat(
        *(_plot_heat_map(name) for name in names), columns=2, data=alt.Data(values=scores)
    )
    heat = maps.resolve_scale(x="independent")
    curves = [_plot_curves(errors)] if errors else []
    looked = [] if inside is None else [draw_panels(inside).properties(title=inside.verdict)]
    charts = alt.vconcat(heat, *curves, *looked).resolve_scale(color="independent")
    return charts.properties(title=alt.TitleParams(title, anchor="start"))


def _plot_heat_map(name: str) -> alt.LayerChart | alt.FacetChart:
    base = (
        alt.Chart()
        .transform_filter(alt.FieldEqualPredicate(field="candidate", equal=name))
        .encode(
            alt.X("step:O", title="step", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
            alt.Y("layer:O", title="layer"),
            tooltip=["candidate:N", "layer:O", "step:O", alt.Tooltip("score:Q", format=".4f")],
        )
    )
    fill = alt.Color("score:Q", title="score", scale=alt.Scale(scheme="viridis", domain=[0, 1]))
    cells = base.mark_rect().encode(fill)
    boxes = base.mark_rect(fillOpacity=0, stroke="#e4572e", strokeWidth=2)
    return alt.layer(cells, boxes.transform_filter(alt.datum.best)).properties(
        width=330, height=160, title=name
    )


def _plot_curves(rows: Rows) -> alt.LayerChart | alt.FacetChart:
    """Plot the errors of candidates as lines, and those of the model (the first rows) as dots."""
    order = list(dict.fromkeys(row["series"] for row in rows))
    floored = [{**row, "error": max(row["error"], FLOOR)} for row in rows]
    scale = alt.Scale(domain=order, range=["#111111", *PALETTE[: len(order) - 1]])
    last = int(max(row["at"] for row in rows))
    ticks = alt.Axis(values=[*range(0, last + 1, 1 + last // 20)], format="d")
    base = alt.Chart(alt.Data(values=floored)).encode(
        alt.X("at:Q", title="layers of the model, steps of a candidate", axis=ticks),
        alt.Y("error:Q", title="error / truth (rms)", axis=alt.Axis(format=".0e")).scale(
            type="log"
        ),
        alt.Color("series:N", title=None, scale=scale),
        tooltip=["series:N", "at:Q", alt.Tooltip("error:Q", format=".3e")],
    )
    is_model = alt.FieldEqualPredicate(field="series", equal=order[0])
    lines = base.mark_line(strokeWidth=2).transform_filter(
        alt.LogicalNotPredicate(**{"not": is_model})
    )
    dots = base.mark_point(filled=True, size=50).transform_filter(is_model)
    return alt.layer(lines, dots).properties(
        width=700,
        height=240,
        title="Error of the model (dots)" + (" and of the candidates" if len(order) > 1 else ""),
    )
