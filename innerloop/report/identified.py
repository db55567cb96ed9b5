"""The figure of a verdict: heat maps with the best match boxed, and errors next to candidates'."""

from __future__ import annotations

import altair as alt

from innerloop.report.figures import FLOOR, Rows


def identified(scores: Rows, errors: Rows, title: str) -> alt.VConcatChart:
    """`scores` has candidate, layer, step, score, best; `errors` has series, at, error."""
    names = list(dict.fromkeys(row["candidate"] for row in scores))
    maps = alt.concat(*(_heat(name) for name in names), columns=2, data=alt.Data(values=scores))
    heat = maps.resolve_scale(x="independent")
    charts = alt.vconcat(heat, _curves(errors)) if errors else alt.vconcat(heat)
    return charts.properties(title=alt.TitleParams(title, anchor="start"))


def _heat(name: str) -> alt.LayerChart | alt.FacetChart:
    base = (
        alt.Chart()
        .transform_filter(alt.datum.candidate == name)
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


def _curves(rows: Rows) -> alt.Chart:
    order = list(dict.fromkeys(row["series"] for row in rows))
    floored = [{**row, "error": max(row["error"], FLOOR)} for row in rows]
    return (
        alt.Chart(alt.Data(values=floored))
        .mark_line(point=alt.OverlayMarkDef(size=20))
        .encode(
            alt.X("at:Q", title="layers of the model, steps of a candidate").axis(tickMinStep=1),
            alt.Y("error:Q", title="error / truth (rms)", axis=alt.Axis(format=".0e")).scale(
                type="log"
            ),
            alt.Color("series:N", title=None, sort=order),
            tooltip=["series:N", "at:Q", alt.Tooltip("error:Q", format=".3e")],
        )
        .properties(width=700, height=240, title="Error of the model and of the candidates")
    )
