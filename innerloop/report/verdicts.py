"""The order, signs, phrases and counts of verdicts."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

Outcomes = list[dict[str, Any]]

SIGNS = {
    "holds": "✓",
    "holds as corrected": "✎",
    "fails": "✗",
    "undecided": "?",
    "not decidable from the source": "–",
    "vacuous": "∅",
    "out of reach": "…",
    "not yet checked": "○",
    "unavailable": "○",
    "broken": "!",
}
"""Every verdict in the order of the page, with a sign that does not rely on colour."""

PHRASES = {
    "holds": ("holds as printed", "hold as printed"),
    "holds as corrected": ("holds as corrected", "hold as corrected"),
    "fails": ("fails", "fail"),
    "undecided": ("is undecided", "are undecided"),
    "not decidable from the source": (
        "is not decidable from the source",
        "are not decidable from the source",
    ),
    "vacuous": ("is true but without content", "are true but without content"),
    "out of reach": ("is out of reach", "are out of reach"),
    "not yet checked": ("is not yet checked", "are not yet checked"),
    "unavailable": ("cannot be checked here", "cannot be checked here"),
    "broken": ("raised an error", "raised an error"),
}
"""The phrase for one claim with a verdict, and for several."""


def phrase_verdict(verdict: str, count: int) -> str:
    """Return the phrase for a number of claims with a verdict, such as `are undecided`."""
    one, several = PHRASES.get(verdict, (verdict, verdict))
    return one if count == 1 else several


def get_source(outcome: dict[str, Any]) -> str:
    """Get the key of the document that a claim is from."""
    return outcome["id"].partition(".")[0]


def name_class(verdict: str) -> str:
    """Return the style class of a verdict, or `unknown` for any other text."""
    return verdict.replace(" ", "-") if verdict in SIGNS else "unknown"


def group_sources(outcomes: Outcomes) -> list[tuple[str, Outcomes]]:
    """Group claims by their document and keep their order."""
    return [(key, list(group)) for key, group in groupby(outcomes, key=get_source)]


def count_verdicts(outcomes: Outcomes) -> dict[str, int]:
    """Count claims by verdict, in the order of the page, without verdicts that do not occur."""
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    order = [*SIGNS, *(verdict for verdict in counts if verdict not in SIGNS)]
    return {verdict: counts[verdict] for verdict in order if counts[verdict]}


def count_errata(outcomes: Outcomes) -> int:
    """Count the errata of claims; a statement that is printed twice counts once."""
    errata_lists = [
        o["evidence"]["errata"] for o in outcomes if o["evidence"] and not o["restates"]
    ]
    return sum(
        erratum["printed"]["passed"] is False for errata in errata_lists for erratum in errata
    )
