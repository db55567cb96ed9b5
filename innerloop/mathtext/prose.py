"""Text with mathematics in it: where the mathematics is, and the text's two faces.

A dollar opens mathematics before what is no space, and closes it after what is no space. Text of
other people is shown as it is wherever it does not read as mathematics: a page never fails for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from innerloop.mathtext.parsing import MathError, write_math

_ENDING = re.compile(r"(<math>(?:(?!<math>).)*?</math>)([,.;:)\]]+)")
_PART = re.compile(r"\$\$|\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)|([^$]+)|(\$)")


def check_text(text: str) -> None:
    """Raise `MathError` where a dollar has no partner, or mathematics cannot be read."""
    list(_split(text))


def to_html(text: str) -> str:
    """Write text as HTML: prose escaped, mathematics as MathML; all of it escaped if it fails."""
    try:
        markup = "".join(markup for _, markup in _split(text))
        # No line breaks between mathematics and the comma after it: style sheets know the class.
        return _ENDING.sub(r'<span class="nb">\1\2</span>', markup)
    except MathError:
        return escape(text)


def to_plain(text: str) -> str:
    """Write text for a terminal: what was typed, without the dollars."""
    try:
        return "".join(plain for plain, _ in _split(text))
    except MathError:
        return text


def strip_dollars(value: Any) -> Any:
    """Write all texts of plain data for a terminal or a chart, names of entries too."""
    if isinstance(value, str):
        return to_plain(value)
    if isinstance(value, dict):
        return {strip_dollars(name): strip_dollars(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [strip_dollars(part) for part in value]
    return value


def iterate_texts(value: Any) -> Iterator[str]:
    """Iterate over all texts of plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for text in iterate_texts(pair))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in iterate_texts(part))


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield each part as plain text and as HTML."""
    for match in _PART.finditer(text):
        mathematics, prose, lone = match.groups()
        if lone:
            place = match.start() + 1
            raise MathError(f"the dollar at character {place} has no partner in {text!r}")
        if mathematics:
            yield mathematics, write_math(mathematics)
        elif prose:
            yield prose, escape(prose)
        else:
            yield "$", "$"
