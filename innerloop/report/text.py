"""Convert the texts of claims to HTML: escape them and typeset their formulas."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from innerloop.mathtext import to_html, typeset_plain
from innerloop.report.escaping import clean

_FUNCTIONS = ("tr", "det", "exp", "log", "sin", "cos", "max", "min", "sup", "inf", "rank", "sign")
"""Names of functions at the beginning of a formula."""


def typeset(value: Any) -> str:
    """Convert text to HTML: formulas are typeset, everything else is escaped."""
    return to_html(clean(str(value)))


def typeset_later(value: Any) -> str:
    """Convert text of a section to HTML; its formulas are typeset when the section is opened."""
    return to_html(clean(str(value)), lambda typed, end: f"<i data-m>{escape(typed)}{end}</i>")


def typeset_formula(value: Any) -> str:
    """Convert a cost or a bound, which has no dollar signs, to HTML with typeset formulas."""
    return typeset_plain(clean(str(value)))


def format_sentence(text: str) -> str:
    """Format text as a sentence: a stop at its end, and a capital letter if it begins with a word.

    A symbol keeps its case: n, δ′, f(A), cε, and a letter before a relation or operation sign.
    """
    # First alternative: the article "a" before a word. Second: a word of two or more letters that
    # is followed by the end of the text, by punctuation, by an apostrophe or a hyphen with another
    # letter, or by a space and anything but a sign of a relation or an operation.
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
