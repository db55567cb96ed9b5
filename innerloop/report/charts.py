"""A claim's figure as a chart: what its evidence says to draw, and nothing else."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

import altair as alt

WIDTH, HEIGHT, PANEL = "container", 300, 260
"""One panel is as wide as the page allows; several have a width of their own."""

TITLE = 46
"""Letters in a line of a title: a phone shows no more of them."""

MOST_LABELS = 12
"""On an axis of a heat map; more of them run into each other."""

_POWERS = "abs(log(datum.value)) > 10 ? format(datum.value, '.0e') : format(datum.value, '~g')"
"""Labels of a log axis: plain numbers while they are short."""


def chart_of(figure: dict[str, Any]) -> alt.TopLevelMixin:
    """The chart of a figure as evidence tells it (`innerloop.claims.evidence.Figure`)."""
    layers = _heat(figure) if figure["mark"] == "heat" else _curves(figure)
    chart = alt.layer(*layers, data=alt.Data(values=[dict(row) for row in figure["rows"]]))
    # An equation is not broken: between no-break spaces it is one word.
    lines = wrap(figure["title"].replace(" = ", "\u00a0=\u00a0"), TITLE)
    title = alt.TitleParams(lines, anchor="start")
    if figure["panel"] is None:
        return chart.properties(width=WIDTH, height=HEIGHT, title=title)
    panels = list(dict.fromkeys(row[figure["panel"]] for row in figure["rows"]))
    facet = alt.Facet(f"{_name(figure['panel'])}:N", title=None, sort=panels)
    return (
        chart.properties(width=PANEL, height=PANEL * 3 // 4)
        .facet(facet, columns=min(len(panels), 3))
        .properties(title=title)
    )


def _curves(figure: dict[str, Any]) -> list[alt.Chart]:
    """Lines, points or bars, over their bands and under the levels to compare with."""
    x, y = _position(alt.X, figure, "x"), _position(alt.Y, figure, "y")
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
            f"{_name(figure['colour']['field'])}:N",
            title=figure["colour"]["title"],
            legend=legend,
            sort=order,
        )
    layers = []
    if figure["band"]:
        low, high = (_name(column) for column in figure["band"])
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
        marks[figure["mark"]](alt.Chart()).encode(x, y, tooltip=_tooltips(figure), **colour)
    )
    for name, level in figure["rules"].items():
        # Once for each panel, not once for each of its rows: words on words look bold and torn.
        base = alt.Chart().transform_aggregate(rows="count()").encode(y=alt.datum(level))
        layers.append(base.mark_rule(strokeDash=[4, 3], color="#555"))
        words = base.mark_text(align="left", baseline="bottom", color="#555", dx=4)
        layers.append(words.encode(x=alt.value(0), text=alt.value(name)))
    return layers


def _heat(figure: dict[str, Any]) -> list[alt.Chart]:
    """Cells filled by a number."""
    colour = figure["colour"]
    values = [row[colour["field"]] for row in figure["rows"]]
    scale = alt.Scale(scheme="blueorange", domainMid=0)
    if min(values) < 0 < max(values):  # the same shade for the same size, whatever the sign
        most = max(map(abs, values))
        scale = alt.Scale(scheme="blueorange", domain=[-most, most])
    fill = alt.Color(f"{_name(colour['field'])}:Q", title=colour["title"], scale=scale)
    cells = (
        alt.Chart()
        .mark_rect()
        .encode(
            _position(alt.X, figure, "x"),
            _position(alt.Y, figure, "y"),
            fill,
            tooltip=_tooltips(figure),
        )
    )
    return [cells]


def _position(channel: Any, figure: dict[str, Any], name: str) -> Any:
    """The encoding of an axis, with its title and scale."""
    axis = figure[name]
    if axis["scale"] == "category" or figure["mark"] == "heat":
        ticks = alt.Axis(labelOverlap=True)
        values = list(dict.fromkeys(row[axis["field"]] for row in figure["rows"]))
        if not any(isinstance(value, str) for value in values):
            every = -(-len(values) // MOST_LABELS)
            ticks = alt.Axis(labelOverlap=True, format=".3~g", values=values[::every])
        return channel(f"{_name(axis['field'])}:O", title=axis["title"], sort=None, axis=ticks)
    if axis["scale"] == "log":
        ticks = alt.Axis(labelExpr=_POWERS, tickCount=6)
        return channel(f"{_name(axis['field'])}:Q", title=axis["title"], axis=ticks).scale(
            type="log"
        )
    zero = figure["mark"] == "bar" and name == "y"
    whole = all(float(row[axis["field"]]).is_integer() for row in figure["rows"])
    ticks = alt.Axis(tickMinStep=1) if whole else alt.Axis()
    return channel(f"{_name(axis['field'])}:Q", title=axis["title"], axis=ticks).scale(zero=zero)


def _tooltips(figure: dict[str, Any]) -> list[alt.Tooltip]:
    """Every column of a row, numbers to four digits."""
    return [
        alt.Tooltip(f"{_name(name)}:N", title=name)
        if isinstance(value, str | bool | None)
        else alt.Tooltip(f"{_name(name)}:Q", title=name, format=".4~g")
        for name, value in figure["rows"][0].items()
    ]


def _name(column: str) -> str:
    """A column's name where dots, brackets and colons mean something else."""
    escaped = column
    for letter in "\\.[]:":
        escaped = escaped.replace(letter, f"\\{letter}")
    return escaped
