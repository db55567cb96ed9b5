"""Convert text with formulas between dollar signs to HTML or plain text.

A dollar sign opens a formula if no space follows it, and closes it if no space precedes it.
`to_html` prints a text that cannot be parsed unchanged, so that a page can always be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from innerloop.mathtext.parsing import MathError, write_math

Write = Callable[[str, str], str]
"""A function of a formula and the punctuation after it, which returns HTML.

No line break may separate the two.
"""

_CLOSING = re.compile(r"[,.;:]*[)\]][,.;:)\]]*")
_PART = re.compile(r"\$\$|\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)|([^$]+)|(\$)")


def check_text(text: str) -> None:
    """Raise `MathError` for an unpaired dollar sign or a formula that cannot be parsed."""
    list(_split(text))


def to_html(text: str, write: Write | None = None) -> str:
    """Convert text to HTML: escape prose, typeset formulas; on failure, escape everything.

    `write` is a function that converts formulas; by default, they become MathML.
    """
    try:
        return "".join(_write_parts(list(_split(text)), write or write_ending))
    except MathError:
        return escape(text)


def write_ending(mathematics: str, ending: str) -> str:
    """Write a formula as MathML, with the comma or full stop that follows it."""
    markup = write_math(mathematics)
    return f"{markup.removesuffix('</math>')}<mi>{ending}</mi></math>" if ending else markup


def _write_parts(parts: list[tuple[str, bool]], write: Write) -> Iterator[str]:
    """Yield the markup of each part; a closing bracket stays with the formula before it."""
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
    """Return the text for a terminal: the source without its dollar signs."""
    try:
        return "".join(part for part, _ in _split(text))
    except MathError:
        return text


def strip_dollars(value: Any) -> Any:
    """Remove the dollar signs from all texts of plain data, including keys."""
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
    """Split text at dollar signs; yield each part, and whether it is a formula."""
    for match in _PART.finditer(text):
        mathematics, prose, lone = match.groups()
        if lone:
            place = match.start() + 1
            raise MathError(
                f"the dollar sign at character {place} has no closing dollar sign in {text!r}"
            )
        if mathematics:
            write_math(mathematics)  # raises MathError if it cannot be parsed
            yield mathematics, True
        else:
            yield prose or "$", False
