"""Compress the figures and formulas of a page into one block of data.

Figures have most of their text in common, as formulas do. The page inflates the piece once, and
puts each part in its place when the card around it opens, or for paper. Without scripts a figure's
place says that it needs them, and a formula is read as its author typed it.
"""

from __future__ import annotations

import base64
import html
import re
import zlib

from innerloop.mathtext import to_html
from innerloop.report.escaping import escape

SHORT = 50
"""Characters of MathML that are not worth a place in the piece."""

_SIZE = re.compile(r'^<svg[^>]* width="([\d.]+)" height="([\d.]+)"')
_LATER = re.compile("<i data-m>(.*?)</i>")
_OPTIONAL = re.compile(
    "</(?:td|th|tr|thead|tbody|dt|dd)>|</p>(?=<(?:p|div|details|figure|dl|h4|/div|/details)[ >])"
)
"""Ends of elements that HTML lets one leave out."""


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
        missing = "<noscript>It needs JavaScript.</noscript>"
        place = f'<div style="{room}" data-svg="{self.add(svg)}">{missing}</div>'
        return render_box(place, title, id)

    def shorten(self, markup: str) -> str:
        """Number the mathematics that `typeset_later` wrote; leave out ends that need not be."""
        return _OPTIONAL.sub("", _LATER.sub(self._number, markup))

    def _number(self, match: re.Match[str]) -> str:
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
