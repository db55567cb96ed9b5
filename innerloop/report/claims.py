"""The claims of the report as HTML: counts of verdicts, and every claim in full."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import Any

from innerloop.report.escaping import escape

VERDICTS = (
    "holds",
    "holds as corrected",
    "fails",
    "undecided",
    "vacuous",
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


def count_errata(outcomes: Outcomes) -> int:
    """Count the errata of claims, those of a statement that is printed twice once."""
    own = [o["evidence"]["errata"] for o in outcomes if o["evidence"] and not o["restates"]]
    return sum(erratum["printed"]["passed"] is False for errata in own for erratum in errata)


def count_beyond(outcomes: Outcomes) -> int:
    """Count what was found beyond what the sources say."""
    own = [o["evidence"]["beyond"] for o in outcomes if o["evidence"] and not o["restates"]]
    return sum(len(beyond) for beyond in own)


COUNTED = {"errata": count_errata, "beyond": count_beyond}
"""What is counted beside the verdicts, without effect on them."""


def render_summary(outcomes: Outcomes) -> str:
    """Render the number of claims per verdict, in total and by source."""
    verdicts = list_verdicts(outcomes)
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    tiles = "".join(
        f'<li class="tile {_css_class(verdict)}"><b>{counts[verdict]}</b> {verdict}</li>'
        for verdict in verdicts
    )
    head = "".join(f'<th class="number">{title}</th>' for title in (*verdicts, *COUNTED))
    rows = ""
    for _, group in groupby(outcomes, key=_get_source):
        members = list(group)
        own = Counter(outcome["verdict"] for outcome in members)
        numbers = [own[verdict] for verdict in verdicts] + [
            count(members) for count in COUNTED.values()
        ]
        cells = "".join(f'<td class="number">{number or ""}</td>' for number in numbers)
        rows += f"<tr><td>{escape(members[0]['source'])}</td>{cells}</tr>"
    return (
        f'<ul class="tiles">{tiles}</ul><div class="scroll"><table class="verdicts"><thead><tr>'
        f"<th>source</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
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
    verdict, label, id = outcome["verdict"], escape(outcome["label"]), escape(outcome["id"])
    marks = f'data-verdict="{escape(verdict)}" data-source="{escape(_get_source(outcome))}"'
    head = (
        f'<article class="claim" id="{id}" {marks}>'
        f'<h4><a href="#{id}">{id}</a> '
        f'<span class="badge {escape(_css_class(verdict))}">{label}</span></h4>'
        f"<p>{escape(format_sentence(outcome['statement']))}</p>"
        f"{_render_origin(outcome)}"
    )
    return f"{head}{_render_stale(outcome)}{_render_details(outcome)}</article>"


def _render_origin(outcome: dict[str, Any]) -> str:
    """Say which claim a restatement repeats, and what its statement presupposes."""
    text = ""
    if id := escape(outcome["restates"]):
        text += f'<p class="small">The statement of <a href="#{id}">{id}</a>, and its check.</p>'
    if given := outcome["hypotheses"]:
        words = "; ".join(f"{escape(name)} ({escape(at)})" for name, at in given.items())
        text += f'<p class="small">Presupposed: {words}.</p>'
    return text


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
    parts += "".join(_render_erratum(erratum) for erratum in evidence["errata"])
    parts += "".join(_render_beyond(check) for check in evidence["beyond"])
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
    for name, check in part["other_readings"].items():
        forms += _render_check(f"Another reading, {escape(name)}", check)
    notes = [f"Reading: {part['reading']}"] if part["reading"] else []
    notes += [f"Vacuous: {part['vacuous']}"] if part["vacuous"] else []
    text = "".join(f'<p class="small">{escape(format_sentence(note))}</p>' for note in notes)
    return f'<div class="part">{forms}</div>{text}'


def _render_erratum(erratum: dict[str, Any]) -> str:
    title = f"Erratum ({erratum['grade']}), {escape(erratum['where'])}"
    forms = _render_check(title, erratum["printed"])
    if erratum["corrected"]:
        forms += _render_check("Corrected", erratum["corrected"])
    meant = f'<p class="small">Meant: {escape(erratum["meant"])}.</p>' if erratum["meant"] else ""
    return f'<div class="part erratum">{forms}</div>{meant}'


def _render_beyond(check: dict[str, Any]) -> str:
    return f'<div class="part beyond">{_render_check("Beyond what is stated", check)}</div>'


def _render_check(title: str, check: dict[str, Any]) -> str:
    outcome = {True: "holds", False: "fails", None: "undecided"}[check["passed"]]
    example = escape(check["counterexample"])
    shown = f"<p>The smallest counterexample found:</p><pre>{example}</pre>" if example else ""
    ours = f" Threshold of ours: {check['ours']}." if check["ours"] else ""
    return (
        f'<div class="form"><h5>{title}: <span class="{outcome}">{outcome}</span></h5>'
        f'<p class="formula">{escape(check["statement"])}</p>'
        f'<p class="small">{escape(format_sentence(check["summary"]) + ours)}</p>{shown}</div>'
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


def format_sentence(text: str) -> str:
    """Format text as a sentence: a stop at its end, and a capital letter if it begins with a word.

    A symbol keeps its case: n, δ′, f(A), cε, and whatever a sign of relation or operation follows.
    """
    word = re.match(r"[a-z]{2,}(?=$|[,:;.]|['’-][a-z]| [^\s=≤≥<>≈~∈∉⊂≼≽→←↦+−·×/^*(])", text)
    if word and word[0] not in _FUNCTIONS:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


_FUNCTIONS = ("tr", "det", "exp", "log", "sin", "cos", "max", "min", "sup", "inf", "rank", "sign")
"""Names of functions that a formula may begin with."""


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
