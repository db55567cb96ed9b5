"""Text of claims on the page: escaped, with its mathematics typeset."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from innerloop.mathtext import to_html, typeset_plain
from innerloop.report.escaping import clean

_FUNCTIONS = ("tr", "det", "exp", "log", "sin", "cos", "max", "min", "sup", "inf", "rank", "sign")
"""Names of functions that a formula may begin with."""


def typeset(value: Any) -> str:
    """Write text as HTML: what may be mathematics is typeset, everything else is escaped."""
    return to_html(clean(str(value)))


def typeset_later(value: Any) -> str:
    """Write text of a part that unfolds: its mathematics is typeset when it does (`packing`)."""
    return to_html(clean(str(value)), lambda typed, end: f"<i data-m>{escape(typed)}{end}</i>")


def typeset_formula(value: Any) -> str:
    """Write a cost or a bound, which have no dollars, as HTML with its mathematics typeset."""
    return typeset_plain(clean(str(value)))


def format_sentence(text: str) -> str:
    """Format text as a sentence: a stop at its end, and a capital letter if it begins with a word.

    A symbol keeps its case: n, δ′, f(A), cε, and whatever a sign of relation or operation follows.
    """
    word = re.match(
        r"a(?= [a-z]+-?[a-z]{2,})|"
        r"[a-z]{2,}(?=$|[,:;.]|['’-][a-z]| [^\s=≤≥<>≈~∈∉⊂≼≽→←↦+−·×/^*(])",
        text,
    )
    if word and word[0] not in _FUNCTIONS:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def format_value(value: Any) -> str:
    """Format a number or a word of a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
