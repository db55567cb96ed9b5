"""The claims of the report as HTML: counts of verdicts, corrections, and every claim in full."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from innerloop.report.escaping import escape

VERDICTS = (
    "holds",
    "holds as corrected",
    "fails",
    "undecided",
    "out of reach",
    "not yet checked",
    "broken",
)
"""Every verdict, in the order of the page; `broken` is shown only where a check broke."""
MAX_LINES = 60
"""Rows of a table on the page; a longer one is cut, and its title says so."""

Outcomes = list[dict[str, Any]]


def list_verdicts(outcomes: Outcomes) -> list[str]:
    """List the verdicts that the page counts."""
    broken = any(outcome["verdict"] == "broken" for outcome in outcomes)
    return [verdict for verdict in VERDICTS if verdict != "broken" or broken]


def render_summary(outcomes: Outcomes) -> str:
    """Render the number of claims per verdict, in total and by source."""
    verdicts = list_verdicts(outcomes)
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    tiles = "".join(
        f'<li class="tile {_css_class(verdict)}"><b>{counts[verdict]}</b> {verdict}</li>'
        for verdict in verdicts
    )
    head = "".join(f'<th class="number">{verdict}</th>' for verdict in verdicts)
    rows = ""
    for _, group in groupby(outcomes, key=_get_source):
        members = list(group)
        own = Counter(outcome["verdict"] for outcome in members)
        cells = "".join(f'<td class="number">{own[verdict] or ""}</td>' for verdict in verdicts)
        rows += f"<tr><td>{escape(members[0]['source'])}</td>{cells}</tr>"
    return (
        f'<ul class="tiles">{tiles}</ul><div class="scroll"><table class="verdicts"><thead><tr>'
        f"<th>source</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


IMPACT_HEADINGS = {
    "result": "What a source concludes changes",
    "step": "A formula on the way is wrong, the conclusion stands",
    "print": "The print is wrong, and it is plain what is meant",
}
"""Headings for mistakes, by how much they change; the most consequential first."""


def render_findings(outcomes: Outcomes) -> str:
    """Render every statement that fails as printed, with its correction, by what it changes."""
    wrong = [
        (outcome["id"], part)
        for outcome in outcomes
        if outcome["evidence"]
        for part in outcome["evidence"]["parts"]
        if part["printed"]["passed"] is False
    ]
    if not wrong:
        return "<p>Every statement that was checked holds as printed.</p>"
    sections = ""
    for matters, title in IMPACT_HEADINGS.items():
        lines = "".join(
            _render_finding(id, part) for id, part in wrong if part["matters"] == matters
        )
        sections += f"<h3>{title}</h3><ol>{lines}</ol>" if lines else ""
    return sections


def _render_finding(id: str, part: dict[str, Any]) -> str:
    printed, corrected = part["printed"], part["corrected"]
    counterexample = f"<code>{escape(printed['counterexample'])}</code>"
    correction = "No correction is known."
    if corrected:
        holds = {True: "holds", False: "fails too", None: "is undecided"}[corrected["passed"]]
        correction = (
            f"Corrected, and it {holds}: <i>{escape(_format_sentence(corrected['statement']))}</i>"
        )
    return (
        f'<li><a href="#{escape(id)}">{escape(id)}</a>: '
        f"<i>{escape(_format_sentence(printed['statement']))}</i> "
        f"Counterexample: {counterexample}. {correction}</li>"
    )


def render_articles(outcomes: Outcomes) -> str:
    """Render every claim, source by source."""
    sections = ""
    for key, group in groupby(outcomes, key=_get_source):
        members = list(group)
        title = escape(members[0]["source"])
        inner = "".join(_render_article(outcome) for outcome in members)
        sections += f'<section class="source" data-source="{escape(key)}"><h3>{title}</h3>{inner}'
        sections += "</section>"
    return sections


def render_options(outcomes: Outcomes) -> tuple[str, str]:
    """Render the options of the two menus: verdicts and sources."""
    sources = list(dict.fromkeys(_get_source(outcome) for outcome in outcomes))
    return (
        "".join(f"<option>{verdict}</option>" for verdict in list_verdicts(outcomes)),
        "".join(f"<option>{escape(source)}</option>" for source in sources),
    )


def collect_figures(outcomes: Outcomes) -> dict[str, dict[str, Any]]:
    """Collect the figures of all claims, by the name of their page element and their files."""
    return {
        name_figure(outcome["id"], k): figure
        for outcome in outcomes
        if outcome["evidence"]
        for k, figure in enumerate(outcome["evidence"]["figures"], 1)
    }


def name_figure(id: str, number: int) -> str:
    return f"{id.replace('.', '-')}-{number}"


def _get_source(outcome: dict[str, Any]) -> str:
    return outcome["id"].partition(".")[0]


def _css_class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _render_article(outcome: dict[str, Any]) -> str:
    verdict, id = outcome["verdict"], escape(outcome["id"])
    marks = f'data-verdict="{escape(verdict)}" data-source="{escape(_get_source(outcome))}"'
    head = (
        f'<article class="claim" id="{id}" {marks}>'
        f'<h4><a href="#{id}">{id}</a> '
        f'<span class="badge {escape(_css_class(verdict))}">{escape(verdict)}</span></h4>'
        f"<p>{escape(_format_sentence(outcome['statement']))}</p>"
    )
    return f"{head}{_render_stale(outcome)}{_render_details(outcome)}</article>"


def _render_stale(outcome: dict[str, Any]) -> str:
    """Say that a stored result was made by other code, and what changed since."""
    stale = outcome["stale"]
    if not stale:
        return ""
    changed = ", ".join(f"<code>{escape(name)}</code>" for name in stale["changed"])
    return (
        f'<p class="stale">Stale: the result at {escape(stale["preset"])} of '
        f"{escape(stale['made'])} ({escape(stale['verdict'])}) was made by other code and is not "
        f"used. Changed since: {changed}. <code>innerloop check {escape(outcome['id'])} "
        f"--preset {escape(stale['preset'])}</code> makes it again.</p>"
    )


def _render_details(outcome: dict[str, Any]) -> str:
    evidence = outcome["evidence"]
    if evidence is None:
        return f"<pre>{escape(outcome['error'])}</pre>" if outcome["error"] else ""
    parts = "".join(_render_part(part) for part in evidence["parts"])
    reason = f"<p>{escape(evidence['out_of_reach'])}</p>" if evidence["out_of_reach"] else ""
    numbers = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(_format_value(value))}</dd>"
        for name, value in evidence["numbers"].items()
    )
    figures = "".join(
        f'<figure><div class="scroll">{_render_place(name_figure(outcome["id"], k))}</div>'
        f"<figcaption>{escape(figure['caption'])}</figcaption></figure>"
        for k, figure in enumerate(evidence["figures"], 1)
    )
    versions = ", ".join(f"{name} {version}" for name, version in outcome["versions"].items())
    origin = (
        f"{outcome['where']} · {outcome['kind']} · preset {outcome['preset']} · "
        f"{outcome['seconds']:.1f} s · {outcome['made']} · {versions}"
    )
    return (
        f"{parts}{reason}{figures}"
        + (f"<dl>{numbers}</dl>" if numbers else "")
        + _render_table(evidence["table"])
        + f'<p class="made">{escape(origin)}<br><code>{escape(outcome["command"])}</code></p>'
    )


def _render_place(name: str) -> str:
    return f'<div class="chart" id="{escape(name)}"></div>'


def _render_part(part: dict[str, Any]) -> str:
    forms = _render_check("As printed", part["printed"])
    if part["corrected"]:
        forms += _render_check("Corrected", part["corrected"])
    return f'<div class="part">{forms}</div>'


def _render_check(title: str, check: dict[str, Any]) -> str:
    outcome = {True: "holds", False: "fails", None: "undecided"}[check["passed"]]
    example = escape(check["counterexample"])
    shown = f"<p>The smallest counterexample found:</p><pre>{example}</pre>" if example else ""
    return (
        f'<div class="form"><h5>{title}: <span class="{outcome}">{outcome}</span></h5>'
        f'<p class="formula">{escape(check["statement"])}</p>'
        f'<p class="small">{escape(_format_sentence(check["summary"]))}</p>{shown}</div>'
    )


def _render_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = "".join(
        "<tr>"
        + "".join(f"<td>{escape(_format_value(row.get(name)))}</td>" for name in columns)
        + "</tr>"
        for row in rows[:MAX_LINES]
    )
    cut = f", the first {MAX_LINES} shown" if len(rows) > MAX_LINES else ""
    return (
        f"<details><summary>Table ({len(rows)} rows{cut})</summary><div class=scroll><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


def _format_sentence(text: str) -> str:
    """Format text as a sentence: with a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
