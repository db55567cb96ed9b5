"""List and render the findings: statements that do not hold, errata, and further results.

Every finding names its statement and its document, so that it can be read alone. `list_findings`
returns them as plain data and `render_findings` as HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innerloop.report.escaping import escape
from innerloop.report.text import format_sentence, typeset
from innerloop.report.verdicts import Outcomes, count_verdicts, group_sources

HEADINGS = {
    "statement": "Statements that do not hold as printed",
    "vacuous": "Statements that are true but without content",
    "step": "Errata: a formula of a proof is wrong, and the statement is not affected",
    "print": "Errata: misprints whose meaning is clear",
    "beyond": "Results about questions that the sources do not address",
    "open": "Undecided statements, and the computation or mathematics that would decide them",
    "missing": "Statements that cannot be decided from the source, and the information that "
    "it does not print",
}
"""Headings of the kinds of findings, in the order of the page."""

MAX_CARDS = 6
"""The number of findings that are visible at once; the others are in a list that can be opened."""

_PLAIN = {
    "vacuous": ("printed", "summary"),
    "open": ("printed", "decided_by"),
    "missing": ("printed", "missing"),
}
"""Kinds of findings without a correction, and the fields that the page prints."""
_OUTCOMES = {True: "holds", False: "fails", None: "undecided"}
_CORRECTION_NOTES = {
    "holds": "",
    "fails": " (this correction fails too)",
    "undecided": " (this correction is open)",
}


def list_findings(outcomes: Outcomes) -> list[dict[str, Any]]:
    """List all findings as plain data, sorted by kind; restatements are left out.

    Each has `kind` (a key of `HEADINGS`), `id`, `source`, `where` and `claim` (the statement it is
    about). It also has `printed`, `counterexample`, `corrected`, `outcome` (of the correction, or
    of a check beyond the source), `weaker`, `meant`, `missing`, `decided_by` (what would decide an
    undecided statement, or an open correction) and `summary`, if they exist. Texts may contain
    formulas between dollar signs.
    """
    findings = [
        {
            "kind": kind,
            "id": outcome["id"],
            "source": outcome["reference"]["short"],
            "where": outcome["where"],
            "claim": outcome["statement"],
            **rest,
        }
        for outcome in outcomes
        if outcome["evidence"] and not outcome["restates"]
        for kind, rest in [*_list_failures(outcome), *_list_open(outcome)]
    ]
    return sorted(findings, key=_rank)


def _rank(finding: dict[str, Any]) -> tuple[int, bool]:
    """Return the sort key: the kind, and statements without a known correction first."""
    return list(HEADINGS).index(finding["kind"]), finding.get("outcome") == "holds"


def summarise(outcomes: Outcomes) -> dict[str, Any]:
    """Summarise a report as plain data: verdicts per source, and every finding."""
    return {
        "verdicts": count_verdicts(outcomes),
        "sources": [
            {
                "key": key,
                **members[0]["reference"],
                "verdicts": count_verdicts(members),
            }
            for key, members in group_sources(outcomes)
        ],
        "findings": list_findings(outcomes),
    }


def _list_failures(outcome: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """List failing and vacuous parts, errata and results beyond the source, each with its kind."""
    evidence = outcome["evidence"]
    for part in evidence["parts"]:
        if part["printed"]["passed"] is False:
            failure = _describe_failure(part)
            is_open = failure["outcome"] == "undecided"
            yield "statement", {**failure, "decided_by": outcome["decided_by"] * is_open}
        elif part["vacuous"] and part["printed"]["passed"]:
            yield "vacuous", {"printed": part["printed"]["statement"], "summary": part["vacuous"]}
    for erratum in evidence["errata"]:
        if erratum["printed"]["passed"] is False:
            yield erratum["grade"], {**_describe_failure(erratum), "place": erratum["where"]}
    for check in evidence["beyond"]:
        yield (
            "beyond",
            {
                "printed": check["statement"],
                "outcome": _OUTCOMES[check["passed"]],
                "counterexample": check["counterexample"],
                "summary": check["summary"].replace("\n", "; "),
            },
        )


def _list_open(outcome: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """List the undecided parts of a claim as one finding, with the reason."""
    reasons = {
        "undecided": ("open", "decided_by", outcome["decided_by"]),
        "not decidable from the source": ("missing", "missing", outcome["evidence"]["missing"]),
    }
    if reason := reasons.get(outcome["verdict"]):
        kind, name, text = reason
        parts = outcome["evidence"]["parts"]
        open_parts = [part for part in parts if part["printed"]["passed"] is None]
        statements = "; ".join(part["printed"]["statement"] for part in open_parts)
        yield kind, {"printed": statements, name: text}


def _describe_failure(failure: dict[str, Any]) -> dict[str, Any]:
    """Return the texts of a failing form: counterexample, correction and weaker statement."""
    printed, corrected = failure["printed"], failure["corrected"]
    return {
        "printed": printed["statement"],
        "counterexample": printed["counterexample"],
        "corrected": corrected["statement"] if corrected else "",
        "outcome": _OUTCOMES[corrected["passed"]] if corrected else "",
        "weaker": weaker["statement"] if (weaker := failure.get("weaker")) else "",
        "meant": failure.get("meant", ""),
    }


def render_findings(outcomes: Outcomes) -> str:
    """Render the first failing statements in full, and all findings as lists that can be opened.

    The cards of the claims contain all findings; a script copies them into a list that is opened.
    """
    findings = list_findings(outcomes)
    if not findings:
        return "<p>Every statement that was checked holds as printed.</p>"
    sections = ""
    for kind, title in HEADINGS.items():
        members = [finding for finding in findings if finding["kind"] == kind]
        if kind == "statement" and members:
            sections += f"<h3>{title} <small>{len(members)}</small></h3>"
            sections += _render_cards(members[:MAX_CARDS])
            if len(members) > MAX_CARDS:
                sections += _render_list("All statements of this kind", len(members), kind)
        elif kind in _PLAIN and members:
            sections += _render_fold(title, len(members), _render_cards(members))
        elif members:
            sections += _render_list(title, len(members), kind)
    return sections


_NO_SCRIPT = "<noscript><p>The cards of the claims below contain these findings.</p></noscript>"


def _render_list(title: str, count: int, kind: str) -> str:
    place = f'<div class="findings" data-gather="{kind}"></div>'
    return _render_fold(title, count, f"{place}{_NO_SCRIPT}")


def _render_fold(title: str, count: int, body: str) -> str:
    """Render a section with a title and a count, which the reader can open."""
    return (
        f'<details class="fold"><summary><h3>{title} <small>{count}</small></h3></summary>'
        f"{body}</details>"
    )


def _render_cards(findings: list[dict[str, Any]]) -> str:
    return f'<div class="findings">{"".join(map(_render_finding, findings))}</div>'


def _render_finding(finding: dict[str, Any]) -> str:
    """Render a finding with its source, its statement, its printed form and its correction."""
    id = escape(finding["id"])
    head = (
        f'<p class="subject"><a href="#{id}">{escape(finding["source"])} · '
        f"{escape(finding['where'] or finding['id'])}</a></p>"
        f'<p class="claimed">{typeset(format_sentence(finding["claim"]))}</p>'
    )
    if names := _PLAIN.get(finding["kind"]):
        texts = [finding[name] for name in names if finding[name]]
        body = "".join(f"<p>{typeset(format_sentence(text))}</p>" for text in texts)
        return f'<article class="finding">{head}{body}</article>'
    example = typeset(finding["counterexample"])
    was = f'<p class="was">{typeset(format_sentence(finding["printed"]))}</p>'
    was += f'<p class="example">{example}</p>' if example else ""
    return f'<article class="finding">{head}{was}{_render_correction(finding)}</article>'


def _render_correction(finding: dict[str, Any]) -> str:
    """Render the correction of a finding, or a note that none is known."""
    if finding["corrected"]:
        mark = "now" if finding["outcome"] == "holds" else f"now {finding['outcome']}"
        note = _CORRECTION_NOTES[finding["outcome"]]
        text = f'<p class="{mark}">{typeset(format_sentence(finding["corrected"]))}{note}</p>'
        if decided_by := finding.get("decided_by"):
            text += f"<p>What would decide the correction: {typeset(decided_by)}.</p>"
        return text
    if finding["weaker"]:
        text = typeset(format_sentence(finding["weaker"]))
        return f'<p class="now">{text} (weaker than what is printed)</p>'
    if finding["meant"]:
        return f'<p class="now">{typeset(format_sentence(finding["meant"]))}</p>'
    return '<p class="none">No correction is known.</p>'
