"""Text with mathematics in it: where the mathematics is, and the text's two faces.

A dollar opens mathematics before what is no space, and closes it after what is no space. Text of
other people is shown as it is wherever it does not read as mathematics: a page never fails for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from innerloop.mathtext.parsing import MathError, write_math

_PART = re.compile(r"\$\$|\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)|([^$]+)|(\$)")


def check_text(text: str) -> None:
    """Raise `MathError` where a dollar has no partner, or mathematics cannot be read."""
    list(_split(text))


def to_html(text: str) -> str:
    """Write text as HTML: prose escaped, mathematics as MathML; all of it escaped if it fails."""
    try:
        return "".join(markup for _, markup in _split(text))
    except MathError:
        return escape(text)


def to_plain(text: str) -> str:
    """Write text for a terminal: what was typed, without the dollars."""
    try:
        return "".join(plain for plain, _ in _split(text))
    except MathError:
        return text


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield each part as plain text and as HTML."""
    for match in _PART.finditer(text):
        mathematics, prose, lone = match.groups()
        if lone:
            place = match.start() + 1
            raise MathError(f"the dollar at character {place} has no partner in {text!r}")
        if mathematics:
            yield mathematics, write_math(mathematics)
        else:
            yield (prose, escape(prose)) if prose else ("$", "$")
