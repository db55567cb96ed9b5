"""Verdicts on the page: their order, signs and counts."""

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
"""Every verdict in the order of the page, with the sign that tells it apart without its colour."""

PHRASES = {
    "holds": ("holds as printed", "hold as printed"),
    "holds as corrected": ("holds as corrected", "hold as corrected"),
    "fails": ("fails", "fail"),
    "undecided": ("is undecided", "are undecided"),
    "not decidable from the source": (
        "is not decidable from the source",
        "are not decidable from the source",
    ),
    "vacuous": ("is true and says nothing", "are true and say nothing"),
    "out of reach": ("is out of reach", "are out of reach"),
    "not yet checked": ("is not yet checked", "are not yet checked"),
    "unavailable": ("cannot be checked here", "cannot be checked here"),
    "broken": ("broke in the checking", "broke in the checking"),
}
"""What one claim of a verdict does, and what several do."""


def phrase_verdict(verdict: str, count: int) -> str:
    """Say what claims of a verdict do: `is undecided`, `hold as printed`."""
    one, several = PHRASES.get(verdict, (verdict, verdict))
    return one if count == 1 else several


def get_source(outcome: dict[str, Any]) -> str:
    """Get the key of the document that a claim is from."""
    return outcome["id"].partition(".")[0]


def name_class(verdict: str) -> str:
    """Name the style of a verdict; what is no verdict has none of its own."""
    return verdict.replace(" ", "-") if verdict in SIGNS else "unknown"


def group_sources(outcomes: Outcomes) -> list[tuple[str, Outcomes]]:
    """Group claims by their document, in the order given."""
    return [(key, list(group)) for key, group in groupby(outcomes, key=get_source)]


def count_verdicts(outcomes: Outcomes) -> dict[str, int]:
    """Count claims by verdict, in the order of the page; verdicts of no claim are left out."""
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    order = [*SIGNS, *(verdict for verdict in counts if verdict not in SIGNS)]
    return {verdict: counts[verdict] for verdict in order if counts[verdict]}


def count_errata(outcomes: Outcomes) -> int:
    """Count the errata of claims, those of a statement that is printed twice once."""
    own = [o["evidence"]["errata"] for o in outcomes if o["evidence"] and not o["restates"]]
    return sum(erratum["printed"]["passed"] is False for errata in own for erratum in errata)
