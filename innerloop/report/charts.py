"""Draw the figures that claims declare as Vega-Lite charts."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import Any

import altair as alt

from innerloop.report.theme import QUIET

WIDTH, HEIGHT, PANEL = "container", 300, 260
"""The width and height of a chart with one panel, and the width of each of several panels."""

MAX_TITLE = 46
"""The number of characters per line of a title that fit on a phone."""

MAX_LABELS = 12
"""The largest number of labels on an axis of numeric categories; more would overlap."""

_PLAIN_COLUMN = re.compile(r"[\w .:()\[\]+*/^=|,%−-]*")
"""Matches column names that Vega accepts when they are escaped: without quotes and line breaks."""

_BACKSLASH = ("\\", "\N{SET MINUS}")
"""Replaces a backslash by a similar character. Vega-Lite writes titles into expressions and escapes
only their quotes, so a backslash would change the expression."""

_POWER_LABELS = (
    "abs(log(datum.value)) > 10 ? format(datum.value, '.0e') : format(datum.value, '~g')"
)
"""The format of labels on a log axis: plain numbers if they are short."""


def build_chart(figure: dict[str, Any]) -> alt.TopLevelMixin:
    """Build the chart of a figure, given as `innerloop.claims.evidence.Figure` in a dictionary."""
    figure = _rename_columns(figure)
    layers = _draw_heat_map(figure) if figure["mark"] == "heat" else _draw_curves(figure)
    chart = alt.layer(*layers, data=alt.Data(values=[dict(row) for row in figure["rows"]]))
    # No-break spaces keep an equation on one line.
    lines = wrap(figure["title"].replace(" = ", "\u00a0=\u00a0"), MAX_TITLE)
    title = alt.TitleParams(lines, anchor="start")
    if figure["panel"] is None:
        return chart.properties(width=WIDTH, height=HEIGHT, title=title)
    panels = list(dict.fromkeys(row[figure["panel"]] for row in figure["rows"]))
    facet = alt.Facet(f"{_escape_column(figure['panel'])}:N", title=None, sort=panels)
    return (
        chart.properties(width=PANEL, height=PANEL * 3 // 4)
        .facet(facet, columns=min(len(panels), 3))
        .properties(title=title)
    )


def _rename_columns(figure: dict[str, Any]) -> dict[str, Any]:
    """Make column names and titles safe for Vega; `titles` contains the displayed names."""
    columns = dict.fromkeys(name for row in figure["rows"] for name in row)
    names = {n: n if _PLAIN_COLUMN.fullmatch(n) else f"#{k}" for k, n in enumerate(columns)}
    axes = {
        axis: {
            **figure[axis],
            "field": names[figure[axis]["field"]],
            "title": figure[axis]["title"].replace(*_BACKSLASH),
        }
        for axis in ("x", "y", "colour")
        if figure[axis]
    }
    return {
        **figure,
        **axes,
        "rows": [{names[name]: value for name, value in row.items()} for row in figure["rows"]],
        "panel": None if figure["panel"] is None else names[figure["panel"]],
        "band": [names[name] for name in figure["band"]] if figure["band"] else None,
        "titles": {new: old.replace(*_BACKSLASH) for old, new in names.items()},
    }


def _draw_curves(figure: dict[str, Any]) -> list[alt.Chart]:
    """Draw bands, then lines, points or bars, then horizontal reference levels."""
    x, y = _encode_axis(alt.X, figure, "x"), _encode_axis(alt.Y, figure, "y")
    colour = {}
    if figure["colour"]:
        order = list(dict.fromkeys(row[figure["colour"]["field"]] for row in figure["rows"]))
        columns = max(1, 60 // (max(len(str(name)) for name in order) + 4))  # fits a phone
        legend = alt.Legend(
            orient="top",
            columns=columns,
            labelLimit=300,
            symbolType="stroke" if figure["mark"] == "line" else "circle",
            symbolOpacity=1,
        )
        colour["color"] = alt.Color(
            f"{_escape_column(figure['colour']['field'])}:N",
            title=figure["colour"]["title"],
            legend=legend,
            sort=order,
        )
    layers = []
    if figure["band"]:
        low, high = (_escape_column(column) for column in figure["band"])
        if figure["y"]["scale"] == "category":
            ends = alt.Chart().mark_rule(strokeWidth=2, opacity=0.5)
            layers.append(ends.encode(alt.X(f"{low}:Q"), alt.X2(high), y, **colour))
        else:
            area = alt.Chart().mark_area(opacity=0.2)
            layers.append(area.encode(x, alt.Y(f"{low}:Q"), alt.Y2(high), **colour))
    marks = {
        "line": lambda chart: chart.mark_line(point=alt.OverlayMarkDef(size=20)),
        "point": lambda chart: chart.mark_point(filled=True, size=30),
        "bar": lambda chart: chart.mark_bar(),
    }
    layers.append(
        marks[figure["mark"]](alt.Chart()).encode(x, y, tooltip=_list_tooltips(figure), **colour)
    )
    for name, level in figure["rules"].items():
        # One label per panel, not one per row: labels drawn on each other look bold and torn.
        base = alt.Chart().transform_aggregate(rows="count()").encode(y=alt.datum(level))
        layers.append(base.mark_rule(strokeDash=[4, 3], color=QUIET))
        label = base.mark_text(align="left", baseline="bottom", color=QUIET, dx=4)
        layers.append(label.encode(x=alt.value(0), text=alt.value(name)))
    return layers


def _draw_heat_map(figure: dict[str, Any]) -> list[alt.Chart]:
    """Draw a heat map: one cell per row, coloured by a number."""
    colour = figure["colour"]
    values = [row[colour["field"]] for row in figure["rows"]]
    scale = alt.Scale(scheme="blueorange", domainMid=0)
    if min(values) < 0 < max(values):  # the same shade for the same size, whatever the sign
        largest = max(map(abs, values))
        scale = alt.Scale(scheme="blueorange", domain=[-largest, largest])
    fill = alt.Color(f"{_escape_column(colour['field'])}:Q", title=colour["title"], scale=scale)
    cells = (
        alt.Chart()
        .mark_rect()
        .encode(
            _encode_axis(alt.X, figure, "x"),
            _encode_axis(alt.Y, figure, "y"),
            fill,
            tooltip=_list_tooltips(figure),
        )
    )
    return [cells]


def _encode_axis(channel: Any, figure: dict[str, Any], name: str) -> Any:
    """Encode an axis with its title, scale and ticks."""
    axis = figure[name]
    if axis["scale"] == "category" or figure["mark"] == "heat":
        ticks = alt.Axis(labelOverlap=True)
        values = list(dict.fromkeys(row[axis["field"]] for row in figure["rows"]))
        if not any(isinstance(value, str) for value in values):
            stride = -(-len(values) // MAX_LABELS)
            ticks = alt.Axis(labelOverlap=True, format=".3~g", values=values[::stride])
        return channel(
            f"{_escape_column(axis['field'])}:O", title=axis["title"], sort=None, axis=ticks
        )
    if axis["scale"] == "log":
        ticks = alt.Axis(labelExpr=_POWER_LABELS, tickCount=6)
        return channel(f"{_escape_column(axis['field'])}:Q", title=axis["title"], axis=ticks).scale(
            type="log"
        )
    zero = figure["mark"] == "bar" and name == "y"
    whole = all(float(row[axis["field"]]).is_integer() for row in figure["rows"])
    ticks = alt.Axis(tickMinStep=1) if whole else alt.Axis()
    return channel(f"{_escape_column(axis['field'])}:Q", title=axis["title"], axis=ticks).scale(
        zero=zero
    )


def _list_tooltips(figure: dict[str, Any]) -> list[alt.Tooltip]:
    """List one tooltip per column of the rows, numbers to four digits."""
    return [
        alt.Tooltip(f"{_escape_column(name)}:N", title=figure["titles"][name])
        if isinstance(value, str | bool | None)
        else alt.Tooltip(f"{_escape_column(name)}:Q", title=figure["titles"][name], format=".4~g")
        for name, value in figure["rows"][0].items()
    ]


def _escape_column(column: str) -> str:
    """Escape a column's name for Vega, where dots, brackets and colons have a meaning."""
    escaped = column
    for character in "\\.[]:":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped
