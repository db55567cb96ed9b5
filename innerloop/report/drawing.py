"""Figures as SVG for the page: drawn when it is built, short, and compressed.

Drawing takes a tenth of a second for each figure, so what was drawn is kept in a folder, by a
digest of its specification, and found there when the same figure is wanted again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert

from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.report.escaping import clean, escape
from innerloop.report.theme import CONFIG, name_colours

WIDTH = 430
"""Width in pixels of the panel of a figure that has one: a phone shows it at three quarters."""

_DIGITS = re.compile(r"-?\d+\.\d{2,}")
_UNUSED = re.compile(
    r' (?:aria-[a-z]+|role|class|stroke-miterlimit|pointer-events|cursor)="[^"<>]*"'
)
_SIZE = re.compile(r'^<svg[^>]* width="([\d.]+)" height="([\d.]+)"')
_NAMESPACES = re.compile(r' xmlns:xlink="[^"]*"| version="1.1"')


class Drawings:
    """Draws figures as SVG; those drawn before are read from a folder, where one is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.used: set[str] = set()

    def draw(self, spec: dict[str, Any]) -> str:
        """Draw a Vega-Lite specification as SVG with the page's names of colours."""
        spec = {**spec, "width": WIDTH} if spec.get("width") == "container" else spec
        text = json.dumps([clean(spec), CONFIG, _converter()], sort_keys=True)
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.svg.z"
        self.used.add(name)
        kept = self._read(name)
        if kept is not None:
            return kept
        svg = shorten(vl_convert.vegalite_to_svg(clean(spec), config=CONFIG))
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(self.folder / name, zlib.compress(svg.encode(), 9))
            except (FileError, OSError):  # a folder that cannot be written costs time, no page
                self.folder = None
        return svg

    def tidy(self) -> None:
        """Remove what this page did not use."""
        for path in self.folder.glob("*.svg.z") if self.folder is not None else ():
            if path.name not in self.used:
                path.unlink(missing_ok=True)

    def _read(self, name: str) -> str | None:
        """Read a figure that was drawn before; none where there is none, or it is damaged."""
        if self.folder is None:
            return None
        try:
            return zlib.decompress((self.folder / name).read_bytes()).decode()
        except (OSError, zlib.error, UnicodeDecodeError):
            return None


def shorten(svg: str) -> str:
    """Leave out what is not seen: digits beyond a tenth of a pixel, labels of marks, classes."""
    tags = re.split(r"(<[^<>]*>)", svg)
    tags[1::2] = [_shorten_tag(tag) for tag in tags[1::2]]
    return "".join(tags)


def render_plot(svg: str, title: str, name: str = "") -> str:
    """Render the place of a figure, with its compressed self, which the page inflates."""
    size = _SIZE.search(svg)
    room = f"aspect-ratio:{size[1]}/{size[2]};max-width:{size[1]}px" if size else ""
    id = f' id="{escape(name)}"' if name else ""
    packed = (
        f'<div style="{room}" data-svg="{pack(svg)}"><noscript>This figure needs JavaScript, or '
        "<code>innerloop report --figures</code>.</noscript></div>"
    )
    return render_box(packed, title, id)


def render_box(inner: str, title: str, id: str = "") -> str:
    """Render the box of a figure, in which it scrolls where it is wider than the window."""
    label = f'role="img" aria-label="{escape(title)}"'
    return f'<div class="plot" tabindex="0" {label}{id}>{inner}</div>'


def pack(svg: str) -> str:
    """Compress a figure for an attribute, as what browsers call deflate-raw."""
    packer = zlib.compressobj(9, wbits=-15)
    return base64.b64encode(packer.compress(svg.encode()) + packer.flush()).decode()


def _shorten_tag(tag: str) -> str:
    tag = _DIGITS.sub(lambda match: f"{float(match[0]):.1f}".replace(".0", ""), tag)
    return name_colours(_NAMESPACES.sub("", _UNUSED.sub("", tag)))


@cache
def _converter() -> str:
    return version("vl-convert-python")
