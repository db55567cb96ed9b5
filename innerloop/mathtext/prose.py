"""Text with mathematics in it: where the mathematics is, and the text's two faces.

A dollar opens mathematics before what is no space, and closes it after what is no space. Text of
other people is shown as it is wherever it does not read as mathematics: a page never fails for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from innerloop.mathtext.parsing import MathError, write_math

Write = Callable[[str, str], str]
"""Writes mathematics, and the comma or stop after it, from which no line break may part it."""

_CLOSING = re.compile(r"[,.;:]*[)\]][,.;:)\]]*")
_PART = re.compile(r"\$\$|\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)|([^$]+)|(\$)")


def check_text(text: str) -> None:
    """Raise `MathError` where a dollar has no partner, or mathematics cannot be read."""
    list(_split(text))


def to_html(text: str, write: Write | None = None) -> str:
    """Write text as HTML: prose escaped, mathematics as MathML; all of it escaped if it fails.

    `write` gives the markup of mathematics where it is not to be MathML in its place.
    """
    try:
        return "".join(_write_parts(list(_split(text)), write or write_ending))
    except MathError:
        return escape(text)


def write_ending(mathematics: str, ending: str) -> str:
    """Write mathematics as MathML, with the comma or stop that follows it."""
    markup = write_math(mathematics)
    return f"{markup.removesuffix('</math>')}<mi>{ending}</mi></math>" if ending else markup


def _write_parts(parts: list[tuple[str, bool]], write: Write) -> Iterator[str]:
    """Yield the markup of each part; what closes a bracket stays with the mathematics before it."""
    ending = 0
    for k, (part, is_mathematics) in enumerate(parts):
        if not is_mathematics:
            yield escape(part[ending:])
            ending = 0
            continue
        after = parts[k + 1][0] if k + 1 < len(parts) and not parts[k + 1][1] else ""
        match = _CLOSING.match(after)
        if match:
            ending = match.end()
            yield f'<span class="nb">{write(part, "")}{match[0]}</span>'
        else:
            ending = len(after) - len(after.lstrip(",.;:"))
            yield write(part, after[:ending])


def to_plain(text: str) -> str:
    """Write text for a terminal: what was typed, without the dollars."""
    try:
        return "".join(part for part, _ in _split(text))
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


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """Split text at its dollars; yield each part, and whether it is mathematics."""
    for match in _PART.finditer(text):
        mathematics, prose, lone = match.groups()
        if lone:
            place = match.start() + 1
            raise MathError(f"the dollar at character {place} has no partner in {text!r}")
        if mathematics:
            write_math(mathematics)  # raises what is wrong with it
            yield mathematics, True
        else:
            yield prose or "$", False
