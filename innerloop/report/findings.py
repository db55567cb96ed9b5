"""What was found, as HTML: statements that do not hold, errata, and what is beyond the sources.

Every finding says which statement of which document it is about, so that it can be read alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innerloop.report.claims import Outcomes, format_sentence
from innerloop.report.escaping import escape

HEADINGS = {
    "statement": "Statements that do not hold",
    "vacuous": "Statements that are true and say nothing",
    "step": "Errata: a formula on the way is wrong, the statement stands",
    "print": "Errata: the print is wrong, and it is plain what is meant",
    "beyond": "Beyond what the sources say",
}
"""Headings of the kinds of findings, in the order of the page."""


def render_findings(outcomes: Outcomes) -> str:
    """Render every finding under its heading, what a source asserts first."""
    lines: dict[str, str] = dict.fromkeys(HEADINGS, "")
    # A restatement has the findings of its original.
    for outcome in (o for o in outcomes if o["evidence"] and not o["restates"]):
        for kind, text in _list_findings(outcome["evidence"]):
            lines[kind] += f"<li>{_render_subject(outcome)} {text}</li>"
    if not any(lines.values()):
        return "<p>Every statement that was checked holds as printed.</p>"
    return "".join(
        f"<h3>{title}</h3><ol>{lines[kind]}</ol>" for kind, title in HEADINGS.items() if lines[kind]
    )


def _render_subject(outcome: dict[str, Any]) -> str:
    id = escape(outcome["id"])
    where = f" ({escape(outcome['where'])})" if outcome["where"] else ""
    return f'<a href="#{id}">{id}</a>{where}: {escape(format_sentence(outcome["statement"]))}'


def _list_findings(evidence: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for part in evidence["parts"]:
        if part["printed"]["passed"] is False:
            yield "statement", _describe_failure("Printed", part)
        elif part["vacuous"] and part["printed"]["passed"]:
            yield "vacuous", escape(format_sentence(part["vacuous"]))
    for erratum in evidence["errata"]:
        if erratum["printed"]["passed"] is False:
            yield erratum["grade"], _describe_failure(erratum["where"], erratum)
    for check in evidence["beyond"]:
        yield "beyond", _describe_check(check)


def _describe_failure(title: str, found: dict[str, Any]) -> str:
    printed, corrected = found["printed"], found["corrected"]
    text = f"<b>{escape(format_sentence(title)[:-1])}:</b> <i>{_escape_statement(printed)}</i> "
    text += f"Counterexample: <code>{escape(printed['counterexample'])}</code>. "
    if corrected:
        outcome = {True: "holds", False: "fails too", None: "is undecided"}[corrected["passed"]]
        return f"{text}Corrected, and it {outcome}: <i>{_escape_statement(corrected)}</i>"
    if found.get("meant"):
        return f"{text}Meant: <i>{escape(format_sentence(found['meant']))}</i>"
    return f"{text}No correction is known."


def _describe_check(check: dict[str, Any]) -> str:
    outcome = {True: "Holds", False: "Fails", None: "Undecided"}[check["passed"]]
    example = f": <code>{escape(check['counterexample'])}</code>" if check["counterexample"] else ""
    summary = escape(format_sentence(check["summary"]))
    return f"<i>{_escape_statement(check)}</i> {outcome}{example}. {summary}"


def _escape_statement(check: dict[str, Any]) -> str:
    return escape(format_sentence(check["statement"]))
