"""Render the certificates and trainings of the report as tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from innerloop.report.escaping import escape
from innerloop.report.packing import Pack
from innerloop.report.text import typeset_formula
from innerloop.report.theme import name_diagram_colours

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
_COST_TITLES = (
    *("construction", "layers", "heads", "width", "where", "error of a step"),
    "the source prints",
)

Records = list[dict[str, Any]]


def describe_certificates(certificates: Records) -> str:
    """Summarise in a sentence how many constructions match their algorithm."""
    certified = sum(certificate["holds"] for certificate in certificates)
    return f"{certified} of {len(certificates)} constructions certify."


def render_certificates(certificates: Records) -> str:
    """Render the measurements of each construction as a table."""
    head = "".join(f'<th class="number">{title}</th>' for title in _COLUMN_TITLES.values())
    rows = "".join(_render_row(certificate) for certificate in certificates)
    return (
        "<table><thead><tr><th>construction</th><th>law</th><th>exact arithmetic</th>"
        f"{head}</tr>"
        f"</thead><tbody>{rows}</tbody></table>"
    )


def render_costs(certificates: Records) -> str:
    """Render the cost of k steps as formulas, beside the cost that the sources print."""
    head = "".join(f"<th>{title}</th>" for title in _COST_TITLES)
    rows = "".join(
        f"<tr><td>{escape(certificate['name'])}</td>"
        + "".join(f"<td>{typeset_formula(cell)}</td>" for cell in _format_cost(certificate))
        + "</tr>"
        for certificate in certificates
    )
    return f'<table class="costs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def render_diagrams(diagrams: Mapping[str, str], pack: Pack) -> str:
    """Render each program's registers and blocks as sections that can be opened."""
    inner = "".join(
        f"<figure><h4>{escape(name)}</h4>"
        f"{pack.render_plot(name_diagram_colours(svg), f'Registers and blocks of {name}')}</figure>"
        for name, svg in diagrams.items()
    )
    return (
        f'<details class="fold"><summary><h3>Programs <small>{len(diagrams)} written in the '
        "language, their registers and blocks</small></h3></summary>"
        f"{inner}</details>"
        if diagrams
        else ""
    )


def render_trainings(runs: Records, plots: Mapping[str, str]) -> str:
    """Render the runs, grouped by recipe, with final losses and the commands that repeat them."""
    if not runs:
        return "<p>No runs yet: <code>innerloop train linear-attention</code> makes one.</p>"
    return "".join(
        _render_recipe(name, list(group), plots.get(f"training-{name}", ""))
        for name, group in groupby(sorted(runs, key=get_recipe), key=get_recipe)
    )


def render_damaged(damaged: list[dict[str, str]]) -> str:
    """Render the list of runs that could not be read, each with the reason."""
    if not damaged:
        return ""
    rows = "".join(
        f"<tr><td>{escape(run['folder'])}</td><td>{escape(run['reason'])}</td></tr>"
        for run in damaged
    )
    return (
        f'<p class="broken">Damaged, and not shown above: {len(damaged)}.</p>'
        '<div class="scroll" tabindex="0"><table class="damaged"><thead><tr><th>run</th>'
        f"<th>reason</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def get_recipe(run: dict[str, Any]) -> str:
    return run["recipe"]


def _render_recipe(name: str, runs: Records, plot: str) -> str:
    """Render the runs of one recipe as a section with a figure and a table."""
    rows = "".join(
        f"<tr><td>{escape(run['folder'])}<small><code>{escape(run['command'])}</code></small>"
        f'</td><td class="number">{run["final"]["step"]:,}</td>'
        f'<td class="number">{run["final"]["loss"]:.4g}</td>'
        f'<td class="number">{run["seconds"]:.0f}</td></tr>'
        for run in runs
    )
    least = min(run["final"]["loss"] for run in runs)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return (
        f'<details class="fold"><summary><h3>{escape(name)} <small>{count}, least loss '
        f"{least:.4g}</small></h3></summary><figure>{plot}</figure>"
        '<div class="scroll" tabindex="0"><table><thead><tr><th>run</th><th class="number">steps'
        '</th><th class="number">loss</th><th class="number">seconds</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _format_cost(certificate: dict[str, Any]) -> tuple[str, ...]:
    """Format the formulas of layers, heads and width, and their printed form."""
    cost = certificate["cost"]
    formulas = tuple(cost[key] for key in ("layers", "heads", "width", "where"))
    return (*formulas, certificate["error"], cost["printed"])


def _render_row(certificate: dict[str, Any]) -> str:
    """Render the row of a certificate in the table of measurements."""
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
        f'<td class="{verdict}">{verdict}</td>{_render_exactness(certificate)}{numbers}</tr>'
    )


def _render_exactness(certificate: dict[str, Any]) -> str:
    """Render the result of the comparison in rational arithmetic, which older certificates lack."""
    words = {"proof": "proved", "points": "at the points tried", "differs": "differs", "none": "—"}
    exactness = certificate.get("exactness") or {"status": "none", "brief": "not compared"}
    status = words.get(exactness["status"]) or escape(exactness["status"])
    return f"<td>{status}<small>{escape(exactness['brief'])}</small></td>"


def _format_number(value: float | tuple[float, ...]) -> str:
    """Format a number; of a list of numbers per step, format the largest."""
    if isinstance(value, tuple):
        value = max(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
