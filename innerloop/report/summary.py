"""Render the top of the page: the headline, and a bar of verdicts for each source."""

from __future__ import annotations

from typing import Any

from innerloop.report.escaping import escape
from innerloop.report.verdicts import (
    PHRASES,
    SIGNS,
    Outcomes,
    count_errata,
    count_verdicts,
    group_sources,
    name_class,
    phrase_verdict,
)

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def render_headline(outcomes: Outcomes) -> str:
    """Summarise the verdicts in one sentence."""
    checked = [outcome for outcome in outcomes if outcome["evidence"]]
    if not checked:
        return f"None of {count_claims(len(outcomes))} has been checked yet."
    counts = count_verdicts(checked)
    results = [
        f"{counts[verdict]} {phrase_verdict(verdict, counts[verdict])}"
        for verdict in ("holds", "holds as corrected", "fails")
        if counts.get(verdict)
    ]
    results = results or [f"{n} {phrase_verdict(name, n)}" for name, n in counts.items()]
    return (
        f"Of {count_claims(len(checked))} about transformers and algorithms, {join_words(results)}."
    )


def render_lead(outcomes: Outcomes) -> str:
    """Write the paragraph below the headline: the documents, the other verdicts and the errata."""
    counts = count_verdicts(outcomes)
    documents = len(group_sources(outcomes))
    number = NUMBERS[documents] if documents < len(NUMBERS) else str(documents)
    rest = [
        f'<b class="{name_class(name)}">{count}</b> {phrase_verdict(name, count)}'
        for name, count in counts.items()
        if name in PHRASES and name not in ("holds", "holds as corrected", "fails")
    ]
    other = f" Of the others, {join_words(rest)}." if rest else ""
    return (
        f"The claims come from {number} document{'s' * (documents != 1)}, and each has a command "
        f"that repeats its check.{other} The checks found {count_errata(outcomes)} errata in "
        "proofs and in print, which do not change a verdict."
    )


def render_bar(outcomes: Outcomes, title: str, size: str = "") -> str:
    """Render the counts of verdicts as a bar, with a text for screen readers."""
    counts = count_verdicts(outcomes)
    summary = join_words([f"{count} {verdict}" for verdict, count in counts.items()])
    parts = "".join(
        f'<span class="{name_class(verdict)}" style="flex-grow:{count}" '
        f'title="{escape(f"{count} {verdict}")}">{count}</span>'
        for verdict, count in counts.items()
    )
    label = escape(f"{title}: {summary}")
    return f'<div class="bar {size}" role="img" aria-label="{label}">{parts}</div>'


def render_legend(outcomes: Outcomes) -> str:
    """Render the verdicts with their signs and counts."""
    return "".join(
        f'<li class="{name_class(verdict)}"><span class="sign">{SIGNS.get(verdict, "·")}</span>'
        f"{count} {escape(verdict)}</li>"
        for verdict, count in count_verdicts(outcomes).items()
    )


def render_sources(outcomes: Outcomes) -> str:
    """Render each document with its citation, its links and its bar."""
    return "".join(
        f'<div class="document"><div><a href="#source-{escape(key)}"><b>'
        f"{escape(members[0]['reference']['short'])}</b></a>"
        f"<small>{render_citation(members[0])}</small></div>"
        f"{render_bar(members, members[0]['reference']['short'])}</div>"
        for key, members in group_sources(outcomes)
    )


def render_citation(outcome: dict[str, Any]) -> str:
    """Render the citation of a claim's document, with links to it."""
    reference = outcome["reference"]
    links = [
        f'<a href="{escape(address)}" rel="noreferrer">{escape(name)}</a>'
        for name, address in reference["links"].items()
        if str(address).startswith("https://")
    ]
    return " · ".join([escape(reference["citation"]), *links])


def count_claims(number: int) -> str:
    """Format a number of claims, such as `1 claim` or `12 claims`."""
    return "1 claim" if number == 1 else f"{number} claims"


def join_words(words: list[str]) -> str:
    """Join words by commas, the last by "and"."""
    *most, last = words or ["none"]
    return f"{', '.join(most)} and {last}" if most else last
