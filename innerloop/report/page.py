"""The report as one self-contained HTML page: claims, certificates and inlined figures."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

from innerloop.report.charts import build_chart
from innerloop.report.claims import (
    collect_figures,
    render_articles,
    render_options,
    render_summary,
)
from innerloop.report.escaping import clean, escape, fill_template, inline_json, load_bundle
from innerloop.report.figures import (
    plot_error_against_layers,
    plot_regret,
    plot_step_deviations,
    plot_training_curves,
)
from innerloop.report.findings import render_findings
from innerloop.surveys.data import ReportData, Rows

_COLUMN_TITLES = {
    "layers": "layers",
    "heads": "heads",
    "width": "width",
    "parameters": "parameters",
    "operator_norm": "operator norm",
    "step_deviation": "step deviation",
    "tolerance": "tolerance",
    "deviation": "free deviation",
    "free_tolerance": "free tolerance",
}


class Chart(NamedTuple):
    """A Vega-Lite specification and the rows that it draws."""

    spec: dict[str, Any]
    rows: Rows


def draw_charts(data: ReportData) -> dict[str, Chart]:
    """Draw every chart of the report, by the name of its element on the page and of its files."""
    charts: dict[str, Chart] = {}
    for name, figure in collect_figures(data.outcomes).items():
        charts[name] = draw_figure(figure)
    recipes = groupby(sorted(clean(data.runs), key=_recipe_name), key=_recipe_name)
    for name, chart in (
        ("deviation", plot_step_deviations(data.certificates)),
        ("layers", plot_error_against_layers(data.convergence)),
        ("regret", plot_regret(data.regret)),
        *((f"training-{name}", plot_training_curves(list(group))) for name, group in recipes),
    ):
        spec = chart.to_dict()
        charts[name] = Chart(spec, spec["data"]["values"])
    return charts


def render_page(data: ReportData, charts: dict[str, Chart] | None = None) -> str:
    """Render the report as HTML; `charts` are those of `draw_charts`, drawn here unless given.

    Every number on the page comes from `data`.
    """
    charts = draw_charts(data) if charts is None else charts
    certificates = data.certificates
    certified = sum(certificate["holds"] for certificate in certificates)
    verdicts, sources = render_options(data.outcomes)
    versions = certificates[0]["versions"].items() if certificates else ()
    return fill_template(
        "page.html",
        summary=render_summary(data.outcomes),
        findings=render_findings(data.outcomes),
        verdicts=verdicts,
        sources=sources,
        claims=render_articles(data.outcomes),
        total=len(data.outcomes),
        certified=f"{certified} of {len(certificates)} constructions certify.",
        table=_render_certificates(certificates),
        costs=_render_costs(certificates),
        convergence_setting=escape(data.convergence_setting),
        regret_setting=escape(data.regret_setting),
        agreement=escape(_render_agreement(data.regret)),
        trainings=_render_trainings(clean(data.runs)) + _render_damaged(data.damaged),
        command=escape(data.command),
        footer=escape(
            f"Made {data.made} in {data.seconds:.0f} s. "
            + ", ".join(f"{name} {version}" for name, version in versions)
        ),
        bundle=load_bundle(),
        charts=inline_json({name: chart.spec for name, chart in charts.items()}),
    )


def draw_figure(figure: dict[str, Any]) -> Chart:
    """Draw a figure of a claim; one whose stored rows do not fit it is shown as damaged."""
    try:
        return Chart(build_chart(clean(figure)).to_dict(), figure["rows"])
    except Exception as error:  # whatever a stored result holds, it must not cost the page
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        lines = [str(figure.get("title")), "is damaged and cannot be drawn:", reason]
        title = {"text": [line[:200] for line in lines]}
        point = {"mark": "point", "width": "container", "height": 20}
        return Chart(clean({**point, "title": title, "data": {"values": []}}), [])


def _recipe_name(run: dict[str, Any]) -> str:
    return run["recipe"]


def _render_trainings(runs: list[dict[str, Any]]) -> str:
    """Render the runs by recipe, each with its final loss and the command that repeats it."""
    if not runs:
        return "<p>No runs yet: <code>innerloop train linear-attention</code> makes one.</p>"
    sections = ""
    for name, group in groupby(sorted(runs, key=_recipe_name), key=_recipe_name):
        rows = "".join(
            f"<tr><td>{escape(run['folder'])}<small><code>{escape(run['command'])}</code></small>"
            f'</td><td class="number">{run["final"]["step"]:,}</td>'
            f'<td class="number">{run["final"]["loss"]:.4g}</td>'
            f'<td class="number">{run["seconds"]:.0f}</td></tr>'
            for run in group
        )
        sections += (
            f'<div class="chart" id="training-{escape(name)}"></div><div class="scroll"><table>'
            '<thead><tr><th>run</th><th class="number">steps</th><th class="number">loss</th>'
            f'<th class="number">seconds</th></tr></thead><tbody>{rows}</tbody></table></div>'
        )
    return sections


def _render_damaged(damaged: list[dict[str, str]]) -> str:
    """Render the runs that cannot be shown, each with the reason."""
    if not damaged:
        return ""
    rows = "".join(
        f"<tr><td>{escape(run['folder'])}</td><td>{escape(run['reason'])}</td></tr>"
        for run in damaged
    )
    return (
        f'<p class="broken">Damaged, and not shown above: {len(damaged)}.</p>'
        '<div class="scroll"><table class="damaged"><thead><tr><th>run</th><th>reason</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _render_agreement(regret: Rows) -> str:
    """Say on how many actions transformer and policy agree, for each construction."""
    counts = {row["construction"]: (row["same"], row["choices"]) for row in regret}
    shares = (f"{same:,} of {total:,} with {name}" for name, (same, total) in counts.items())
    return f"Actions on which transformer and policy agree: {', '.join(shares)}."


def _render_certificates(certificates: list[dict[str, Any]]) -> str:
    head = "".join(f'<th class="number">{title}</th>' for title in _COLUMN_TITLES.values())
    rows = "".join(_render_row(certificate) for certificate in certificates)
    return (
        f"<table><thead><tr><th>construction</th><th>law</th>{head}</tr>"
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _render_costs(certificates: list[dict[str, Any]]) -> str:
    """Render the cost of k steps as formulas, beside what the sources print."""
    titles = (
        "construction",
        "layers",
        "heads",
        "width",
        "where",
        "error of a step",
        "the source prints",
    )
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = "".join(
        f"<tr><td>{escape(certificate['name'])}</td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in _format_cost(certificate))
        + "</tr>"
        for certificate in certificates
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _format_cost(certificate: dict[str, Any]) -> tuple[str, ...]:
    cost = certificate["cost"]
    formulas = tuple(cost[key] for key in ("layers", "heads", "width", "where"))
    return (*formulas, certificate["error"], cost["printed"])


def _render_row(certificate: dict[str, Any]) -> str:
    numbers = "".join(
        f'<td class="number">{_format_number(certificate[column])}</td>'
        for column in _COLUMN_TITLES
    )
    verdict = "holds" if certificate["holds"] else "broken"
    about = (
        f"{certificate['source']}; {certificate['instances']} instances, seed {certificate['seed']}"
    )
    return (
        f"<tr><td>{escape(certificate['name'])}<small>{escape(about)}</small></td>"
        f'<td class="{verdict}">{verdict}</td>{numbers}</tr>'
    )


def _format_number(value: float | tuple[float, ...]) -> str:
    """Format a number for reading; numbers per step are shown by the largest."""
    if isinstance(value, tuple):
        value = max(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
