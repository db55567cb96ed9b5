"""The claims of the report as HTML: how many hold, and each with all that is known about it."""

from __future__ import annotations

from collections import Counter
from html import escape
from itertools import groupby
from typing import Any

VERDICTS = (
    "holds",
    "holds as corrected",
    "fails",
    "undecided",
    "out of reach",
    "not yet checked",
    "broken",
)
"""Every verdict, in the order in which they are counted; `broken` is shown where there are any."""
MOST_LINES = 60
"""A longer table is cut on the page, and says so."""

Outcomes = list[dict[str, Any]]


def shown_verdicts(outcomes: Outcomes) -> list[str]:
    """The verdicts that the page counts."""
    broken = any(outcome["verdict"] == "broken" for outcome in outcomes)
    return [verdict for verdict in VERDICTS if verdict != "broken" or broken]


def summary(outcomes: Outcomes) -> str:
    """How many claims there are of each verdict, in all and by source."""
    verdicts = shown_verdicts(outcomes)
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    tiles = "".join(
        f'<li class="tile {_class(verdict)}"><b>{counts[verdict]}</b> {verdict}</li>'
        for verdict in verdicts
    )
    head = "".join(f'<th class="number">{verdict}</th>' for verdict in verdicts)
    rows = ""
    for _, group in groupby(outcomes, key=_source):
        members = list(group)
        own = Counter(outcome["verdict"] for outcome in members)
        cells = "".join(f'<td class="number">{own[verdict] or ""}</td>' for verdict in verdicts)
        rows += f"<tr><td>{escape(members[0]['source'])}</td>{cells}</tr>"
    return (
        f'<ul class="tiles">{tiles}</ul><div class="scroll"><table class="verdicts"><thead><tr>'
        f"<th>source</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


MATTERS = {
    "result": "What a source concludes changes",
    "step": "A formula on the way is wrong, the conclusion stands",
    "print": "The print is wrong, and it is plain what is meant",
}
"""How much a mistake changes, most first."""


def findings(outcomes: Outcomes) -> str:
    """Every statement that does not hold as printed, with its correction, by what it changes."""
    wrong = [
        (outcome["id"], part)
        for outcome in outcomes
        if outcome["evidence"]
        for part in outcome["evidence"]["parts"]
        if part["printed"]["passed"] is False
    ]
    if not wrong:
        return "<p>Every statement that was checked holds as printed.</p>"
    told = ""
    for matters, title in MATTERS.items():
        lines = "".join(_finding(id, part) for id, part in wrong if part["matters"] == matters)
        told += f"<h3>{title}</h3><ol>{lines}</ol>" if lines else ""
    return told


def _finding(id: str, part: dict[str, Any]) -> str:
    printed, corrected = part["printed"], part["corrected"]
    found = f"<code>{escape(printed['counterexample'])}</code>"
    mended = "No correction is known."
    if corrected:
        holds = {True: "holds", False: "fails too", None: "cannot be told"}[corrected["passed"]]
        mended = f"Corrected, and it {holds}: <i>{escape(_sentence(corrected['statement']))}</i>"
    return (
        f'<li><a href="#{escape(id)}">{escape(id)}</a>: '
        f"<i>{escape(_sentence(printed['statement']))}</i> Counterexample: {found}. {mended}</li>"
    )


def articles(outcomes: Outcomes) -> str:
    """Every claim, source by source."""
    told = ""
    for key, group in groupby(outcomes, key=_source):
        members = list(group)
        title = escape(members[0]["source"])
        inner = "".join(_article(outcome) for outcome in members)
        told += f'<section class="source" data-source="{escape(key)}"><h3>{title}</h3>{inner}'
        told += "</section>"
    return told


def options(outcomes: Outcomes) -> tuple[str, str]:
    """What the two menus offer: verdicts and sources."""
    sources = list(dict.fromkeys(_source(outcome) for outcome in outcomes))
    return (
        "".join(f"<option>{verdict}</option>" for verdict in shown_verdicts(outcomes)),
        "".join(f"<option>{escape(source)}</option>" for source in sources),
    )


def figures(outcomes: Outcomes) -> dict[str, dict[str, Any]]:
    """Every figure of the claims, by the name that its place on the page and its files have."""
    return {
        figure_name(outcome["id"], k): figure
        for outcome in outcomes
        if outcome["evidence"]
        for k, figure in enumerate(outcome["evidence"]["figures"], 1)
    }


def figure_name(id: str, number: int) -> str:
    return f"{id.replace('.', '-')}-{number}"


def _source(outcome: dict[str, Any]) -> str:
    return outcome["id"].partition(".")[0]


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _article(outcome: dict[str, Any]) -> str:
    verdict, id = outcome["verdict"], escape(outcome["id"])
    marks = f'data-verdict="{verdict}" data-source="{_source(outcome)}"'
    head = (
        f'<article class="claim" id="{id}" {marks}>'
        f'<h4><a href="#{id}">{id}</a> <span class="badge {_class(verdict)}">{verdict}</span></h4>'
        f"<p>{escape(_sentence(outcome['statement']))}</p>"
    )
    return f"{head}{_details(outcome)}</article>"


def _details(outcome: dict[str, Any]) -> str:
    evidence = outcome["evidence"]
    if evidence is None:
        return f"<pre>{escape(outcome['error'])}</pre>" if outcome["error"] else ""
    parts = "".join(_part(part) for part in evidence["parts"])
    reason = f"<p>{escape(evidence['out_of_reach'])}</p>" if evidence["out_of_reach"] else ""
    numbers = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(_value(value))}</dd>"
        for name, value in evidence["numbers"].items()
    )
    drawn = "".join(
        f'<figure><div class="scroll">{_place(figure_name(outcome["id"], k))}</div>'
        f"<figcaption>{escape(figure['caption'])}</figcaption></figure>"
        for k, figure in enumerate(evidence["figures"], 1)
    )
    versions = ", ".join(f"{name} {version}" for name, version in outcome["versions"].items())
    made = (
        f"{outcome['where']} · {outcome['kind']} · preset {outcome['preset']} · "
        f"{outcome['seconds']:.1f} s · {outcome['made']} · {versions}"
    )
    return (
        f"{parts}{reason}{drawn}"
        + (f"<dl>{numbers}</dl>" if numbers else "")
        + _table(evidence["table"])
        + f'<p class="made">{escape(made)}<br><code>{escape(outcome["command"])}</code></p>'
    )


def _place(name: str) -> str:
    return f'<div class="chart" id="{name}"></div>'


def _part(part: dict[str, Any]) -> str:
    forms = _form("As printed", part["printed"])
    if part["corrected"]:
        forms += _form("Corrected", part["corrected"])
    return f'<div class="part">{forms}</div>'


def _form(title: str, check: dict[str, Any]) -> str:
    outcome = {True: "holds", False: "fails", None: "undecided"}[check["passed"]]
    shown = f"<pre>{escape(check['counterexample'])}</pre>" if check["counterexample"] else ""
    shown = f"<p>The smallest counterexample found:</p>{shown}" if shown else ""
    return (
        f'<div class="form"><h5>{title}: <span class="{outcome}">{outcome}</span></h5>'
        f'<p class="formula">{escape(check["statement"])}</p>'
        f'<p class="small">{escape(_sentence(check["summary"]))}</p>{shown}</div>'
    )


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(_value(row.get(name)))}</td>" for name in columns) + "</tr>"
        for row in rows[:MOST_LINES]
    )
    cut = f", the first {MOST_LINES} shown" if len(rows) > MOST_LINES else ""
    return (
        f"<details><summary>Table ({len(rows)} rows{cut})</summary><div class=scroll><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


def _sentence(text: str) -> str:
    """With a capital and a full stop, as people write."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
