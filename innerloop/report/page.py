"""Render the report as one HTML page: summary, pictures, findings, claims, certificates."""

from __future__ import annotations

import base64
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

from innerloop.mathtext import strip_dollars
from innerloop.report.certificates import (
    describe_certificates,
    get_recipe,
    render_certificates,
    render_costs,
    render_damaged,
    render_diagrams,
    render_trainings,
)
from innerloop.report.charts import build_chart
from innerloop.report.claims import (
    collect_figures,
    render_chips,
    render_claims,
    render_options,
)
from innerloop.report.drawing import Drawings
from innerloop.report.escaping import clean, escape, fill_template
from innerloop.report.figures import (
    plot_error_against_layers,
    plot_regret,
    plot_step_deviations,
    plot_training_curves,
)
from innerloop.report.findings import render_findings
from innerloop.report.packing import Pack
from innerloop.report.pictures import render_pictures
from innerloop.report.summary import (
    render_bar,
    render_headline,
    render_lead,
    render_legend,
    render_sources,
)
from innerloop.surveys.data import ReportData, Rows


class Chart(NamedTuple):
    """A Vega-Lite specification and the rows of data that it plots."""

    spec: dict[str, Any]
    rows: Rows


def draw_charts(data: ReportData) -> dict[str, Chart]:
    """Draw every chart of the report; keys name the chart's element on the page and its files."""
    charts: dict[str, Chart] = {}
    for name, figure in collect_figures(data.outcomes).items():
        charts[name] = draw_figure(figure)
    recipes = groupby(sorted(clean(data.runs), key=get_recipe), key=get_recipe)
    for name, chart in (
        ("deviation", plot_step_deviations(data.certificates)),
        ("layers", plot_error_against_layers(data.convergence)),
        ("regret", plot_regret(data.regret)),
        *((f"training-{name}", plot_training_curves(list(group))) for name, group in recipes),
    ):
        spec = chart.to_dict()
        charts[name] = Chart(spec, spec["data"]["values"])
    return charts


def render_page(
    data: ReportData,
    charts: dict[str, Chart] | None = None,
    drawings: Drawings | None = None,
) -> str:
    """Render the report as HTML.

    Every number on the page comes from `data`. `charts` are the results of `draw_charts(data)`,
    which is called if they are None. `drawings` caches figures that were drawn before.
    """
    charts = draw_charts(data) if charts is None else charts
    drawings = Drawings() if drawings is None else drawings
    drawn = {
        name: drawings.draw(chart.spec)
        for name, chart in charts.items()
        if chart.rows or name not in ("deviation", "layers", "regret")  # nothing was measured
    }
    pack = Pack()
    plots = {
        name: pack.render_plot(svg, describe_chart(charts[name].spec), name)
        for name, svg in drawn.items()
    }
    certificates, runs = data.certificates, clean(data.runs)
    versions = certificates[0]["versions"] if certificates else {}
    parts = {
        "pictures": render_pictures(data, drawn, pack),
        "claims": pack.shorten(render_claims(data.outcomes, plots, versions)),
        "table": pack.shorten(render_certificates(certificates)),
        "costs": pack.shorten(render_costs(certificates)),
        "diagrams": render_diagrams(data.diagrams, pack),
    }
    return fill_template(
        "page.html",
        **parts,
        packed=pack.render(),
        style=_load_text("report.css").replace("$font", _load_font()),
        script=_load_text("report.js"),
        headline=escape(render_headline(data.outcomes)),
        lead=render_lead(data.outcomes),
        bar=render_bar(data.outcomes, "All claims", "big"),
        legend=render_legend(data.outcomes),
        documents=render_sources(data.outcomes),
        findings=render_findings(data.outcomes),
        chips=render_chips(data.outcomes),
        sources=render_options(data.outcomes),
        total=len(data.outcomes),
        certified=describe_certificates(certificates),
        deviation=plots.get("deviation", ""),
        trainings=render_trainings(runs, plots) + render_damaged(data.damaged),
        command=escape(data.command),
        footer=escape(
            f"Made {data.made} in {data.seconds:.0f} s. "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
        ),
    )


def draw_figure(figure: dict[str, Any]) -> Chart:
    """Draw a figure of a claim; if its stored rows do not fit, draw a note that it is damaged."""
    try:
        figure = strip_dollars(figure)
        return Chart(build_chart(clean(figure)).to_dict(), figure["rows"])
    except Exception as error:  # whatever a stored result holds, it must not cost the page
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        lines = [str(figure.get("title")), "is damaged and cannot be drawn:", reason]
        title = {"text": [line[:200] for line in lines]}
        point = {"mark": "point", "width": "container", "height": 20}
        return Chart(clean({**point, "title": title, "data": {"values": []}}), [])


def describe_chart(spec: dict[str, Any]) -> str:
    """Return the title of a chart as its text alternative for screen readers."""
    title = spec.get("title", "")
    text = title.get("text", "") if isinstance(title, dict) else title
    return " ".join(text) if isinstance(text, list) else str(text)


def _load_text(name: str) -> str:
    return files("innerloop.report").joinpath(name).read_text("utf-8")


def _load_font() -> str:
    """Load the font of typeset mathematics for the style sheet."""
    return base64.b64encode(
        files("innerloop.mathtext").joinpath("math.woff2").read_bytes()
    ).decode()
