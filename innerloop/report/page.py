"""One self-contained HTML page: claims, certificates, figures inlined, no network."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import Any, NamedTuple

import vl_convert

from innerloop.report.charts import chart_of
from innerloop.report.claims import Outcomes, articles, figures, findings, options, summary
from innerloop.report.figures import (
    Rows,
    deviation_per_step,
    error_against_layers,
    regret_over_time,
    training_curves,
)

_COLUMNS = {
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


class Drawn(NamedTuple):
    """A chart as Vega-Lite, and the rows that it is drawn from."""

    spec: dict[str, Any]
    rows: Rows


def drawn(
    outcomes: Outcomes,
    certificates: list[dict[str, Any]],
    convergence: Rows,
    regret: Rows,
    runs: list[dict[str, Any]],
) -> dict[str, Drawn]:
    """Every chart of the report by its name, which is its place on the page and its file's."""
    charts: dict[str, Drawn] = {}
    for name, figure in figures(outcomes).items():
        charts[name] = Drawn(chart_of(figure).to_dict(), figure["rows"])
    recipes = groupby(sorted(runs, key=_recipe), key=_recipe)
    for name, chart in (
        ("deviation", deviation_per_step(certificates)),
        ("layers", error_against_layers(convergence)),
        ("regret", regret_over_time(regret)),
        *((f"training-{name}", training_curves(list(group))) for name, group in recipes),
    ):
        spec = chart.to_dict()
        charts[name] = Drawn(spec, spec["data"]["values"])
    return charts


def page(
    outcomes: Outcomes,
    certificates: list[dict[str, Any]],
    charts: dict[str, Drawn],
    runs: list[dict[str, Any]],
    *,
    setting: str,
    played: str,
    command: str,
    made: str,
    seconds: float,
) -> str:
    """The report as HTML. Every number on it comes from the arguments."""
    held = sum(certificate["holds"] for certificate in certificates)
    verdicts, sources = options(outcomes)
    versions = certificates[0]["versions"].items() if certificates else ()
    return Template(files("innerloop.report").joinpath("page.html").read_text("utf-8")).substitute(
        summary=summary(outcomes),
        findings=findings(outcomes),
        verdicts=verdicts,
        sources=sources,
        claims=articles(outcomes),
        total=len(outcomes),
        certified=f"{held} of {len(certificates)} constructions certify.",
        table=_table(certificates),
        costs=_costs(certificates),
        setting=escape(setting),
        played=escape(played),
        alike=escape(_alike(charts["regret"].rows)),
        trainings=_trainings(runs),
        command=escape(command),
        footer=escape(
            f"Made {made} in {seconds:.0f} s. "
            + ", ".join(f"{name} {version}" for name, version in versions)
        ),
        bundle=_bundle(),
        charts=_inline({name: chart.spec for name, chart in charts.items()}),
    )


def _recipe(run: dict[str, Any]) -> str:
    return run["recipe"]


def _trainings(runs: list[dict[str, Any]]) -> str:
    """The runs by recipe, with what they ended at and the command that makes them again."""
    if not runs:
        return "<p>No runs yet: <code>innerloop train linear-attention</code> makes one.</p>"
    told = ""
    for name, group in groupby(sorted(runs, key=_recipe), key=_recipe):
        rows = "".join(
            f"<tr><td>{escape(run['folder'])}<small><code>{escape(run['command'])}</code></small>"
            f'</td><td class="number">{run["final"]["step"]:,}</td>'
            f'<td class="number">{run["final"]["loss"]:.4g}</td>'
            f'<td class="number">{run["seconds"]:.0f}</td></tr>'
            for run in group
        )
        told += (
            f'<div class="chart" id="training-{escape(name)}"></div><div class="scroll"><table>'
            '<thead><tr><th>run</th><th class="number">steps</th><th class="number">loss</th>'
            f'<th class="number">seconds</th></tr></thead><tbody>{rows}</tbody></table></div>'
        )
    return told


def _alike(regret: Rows) -> str:
    """How many actions transformer and policy chose alike, for each construction."""
    counts = {row["construction"]: (row["same"], row["choices"]) for row in regret}
    told = (f"{same:,} of {total:,} with {name}" for name, (same, total) in counts.items())
    return f"Actions that transformer and policy chose alike: {', '.join(told)}."


def _bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script, once per page."""
    code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in code.lower():
        raise RuntimeError("the Vega bundle would end its own script element")
    return code


def _inline(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element."""
    return json.dumps(value).replace("<", "\\u003c")


def _table(certificates: list[dict[str, Any]]) -> str:
    head = "".join(f'<th class="number">{title}</th>' for title in _COLUMNS.values())
    rows = "".join(_row(certificate) for certificate in certificates)
    return (
        f"<table><thead><tr><th>construction</th><th>law</th>{head}</tr>"
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _costs(certificates: list[dict[str, Any]]) -> str:
    """What k steps take, as formulas, beside what the sources print."""
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
        + "".join(f"<td>{escape(cell)}</td>" for cell in _cost(certificate))
        + "</tr>"
        for certificate in certificates
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cost(certificate: dict[str, Any]) -> tuple[str, ...]:
    cost = certificate["cost"]
    formulas = tuple(cost[key] for key in ("layers", "heads", "width", "where"))
    return (*formulas, certificate["error"], cost["printed"])


def _row(certificate: dict[str, Any]) -> str:
    numbers = "".join(
        f'<td class="number">{_number(certificate[column])}</td>' for column in _COLUMNS
    )
    verdict = "holds" if certificate["holds"] else "broken"
    about = (
        f"{certificate['source']}; {certificate['instances']} instances, seed {certificate['seed']}"
    )
    return (
        f"<tr><td>{escape(certificate['name'])}<small>{escape(about)}</small></td>"
        f'<td class="{verdict}">{verdict}</td>{numbers}</tr>'
    )


def _number(value: float | tuple[float, ...]) -> str:
    """A number as people read it; of a number for each step, the largest."""
    if isinstance(value, tuple):
        value = max(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
