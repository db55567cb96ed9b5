"""Compress the figures and formulas of a page into one block of data.

Figures share most of their text, and so do formulas, so they are compressed together. The page
inflates the block once. It inserts each part when the card around it is opened or the page is
printed. Without scripts, the page shows a note in place of each figure, and each formula as its
author typed it.
"""

from __future__ import annotations

import base64
import html
import re
import zlib

from innerloop.mathtext import to_html
from innerloop.report.escaping import escape

SHORT = 50
"""Formulas with at most this many characters of MathML stay in the page."""

_SIZE = re.compile(r'^<svg[^>]* width="([\d.]+)" height="([\d.]+)"')
_LATER = re.compile("<i data-m>(.*?)</i>")
_OPTIONAL = re.compile(
    "</(?:td|th|tr|thead|tbody|dt|dd)>|</p>(?=<(?:p|div|details|figure|dl|h4|/div|/details)[ >])"
)
"""Closing tags that HTML allows to omit."""


class Pack:
    """A numbered collection of compressed parts of the page."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, part: str) -> int:
        """Add a part unless it is already there, and return its number."""
        return self._numbers.setdefault(" ".join(part.splitlines()), len(self._numbers))

    def render_plot(self, svg: str, title: str, name: str = "") -> str:
        """Render the empty element of a figure, which the page's script fills."""
        size = _SIZE.search(svg)
        room = f"aspect-ratio:{size[1]}/{size[2]};max-width:{size[1]}px" if size else ""
        id = f' id="{escape(name)}"' if name else ""
        missing = "<noscript>This figure needs JavaScript.</noscript>"
        place = f'<div style="{room}" data-svg="{self.add(svg)}">{missing}</div>'
        return render_box(place, title, id)

    def shorten(self, markup: str) -> str:
        """Replace the formulas of `typeset_later` by their numbers, and omit optional tags."""
        return _OPTIONAL.sub("", _LATER.sub(self._number, markup))

    def _number(self, match: re.Match[str]) -> str:
        """Replace a formula by the number of its typeset form, or by the form if it is short."""
        typed = html.unescape(match[1])
        mathematics = typed.rstrip(",.;:")
        markup = to_html(f"${mathematics}${typed[len(mathematics) :]}")
        if len(markup) <= SHORT:
            return markup
        return f'<i data-m="{self.add(markup)}">{match[1]}</i>'

    def render(self) -> str:
        """Compress all parts, one per line, with raw deflate, and encode them in base64."""
        packer = zlib.compressobj(9, wbits=-15)
        text = "\n".join(self._numbers)
        return base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()


def render_box(inner: str, title: str, id: str = "") -> str:
    """Render the box of a figure, which scrolls if the figure is wider than the window."""
    label = f'role="img" aria-label="{escape(title)}"'
    return f'<div class="plot" tabindex="0" {label}{id}>{inner}</div>'
