"""Draw the figures of the page as SVG.

Drawing takes a tenth of a second per figure. Drawn figures are therefore cached in a folder; the
name of a file is a digest of the figure's specification.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import vl_convert

from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.links import make_folder, read_file, remove_file, resolve_links
from innerloop.report.escaping import clean, escape
from innerloop.report.shortening import NAMESPACE, SHORTER, shorten
from innerloop.report.theme import CONFIG

WIDTH = 430
"""The width in pixels of a figure with one panel; a phone shows three quarters of this size."""

MAX_BYTES = 16 * 2**20
"""The largest number of bytes of an SVG figure; figures of this package have a few hundred KB."""
ELEMENTS = {
    *("svg", "g", "path", "text", "rect", "line", "circle", "defs", "clipPath", "linearGradient"),
    *("stop", "tspan"),
}
"""Elements that a cached figure may contain; none of them runs code or loads a resource."""
ATTRIBUTE = re.compile(r"(?!on|style|href)[a-zA-Z][a-zA-Z0-9-]*")
"""Attributes that the elements of a cached figure may have."""


class Drawings:
    """A renderer of figures as SVG, with an optional folder that caches drawn figures."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = None if folder is None else resolve_links(folder)
        self.used: set[str] = set()

    def draw(self, spec: dict[str, Any]) -> str:
        """Draw a Vega-Lite specification as SVG with the page's names of colours."""
        spec = {**spec, "width": WIDTH} if spec.get("width") == "container" else spec
        text = json.dumps([clean(spec), CONFIG, _converter(), SHORTER], sort_keys=True)
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.svg.z"
        self.used.add(name)
        stored = self._read(name)
        if stored is not None:
            return stored
        try:
            svg = shorten(vl_convert.vegalite_to_svg(clean(spec), config=CONFIG))
        except ValueError as error:  # one figure that the converter refuses costs no page
            return _explain_failure(error)
        if self.folder is not None:
            try:
                make_folder(self.folder)
                write_atomically(self.folder / name, zlib.compress(svg.encode(), 9))
            except (FileError, OSError):  # a folder that cannot be written costs time, no page
                self.folder = None
        return svg

    def tidy(self) -> None:
        """Remove cached figures that this page did not use."""
        for path in self.folder.glob("*.svg.z") if self.folder is not None else ():
            if path.name not in self.used:
                remove_file(path)

    def _read(self, name: str) -> str | None:
        """Read a cached figure; return None if it is missing, damaged or not a figure."""
        if self.folder is None:
            return None
        try:
            stored = zlib.decompressobj().decompress(read_file(self.folder / name), MAX_BYTES)
            svg = stored.decode()
        except (OSError, FileError, zlib.error, UnicodeDecodeError):
            return None
        return svg if is_drawing(svg) else None


def is_drawing(svg: str) -> bool:
    """Return whether a cached figure contains only shapes and text; its author is not trusted."""
    if "<!" in svg or "<?" in svg:
        return False
    try:
        elements = list(ElementTree.fromstring(svg).iter())
    except ElementTree.ParseError:
        return False
    known = {f"{{{NAMESPACE}}}{name}" for name in ELEMENTS}
    return all(
        element.tag in known and all(map(ATTRIBUTE.fullmatch, element.attrib))
        for element in elements
    )


def _explain_failure(error: ValueError) -> str:
    """Return the text that replaces a figure that cannot be drawn, with the reason."""
    reason = escape(" ".join(str(error).split())[:120])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="40">'
        f'<text y="24" fill="currentColor">This figure cannot be drawn: {reason}</text></svg>'
    )


@cache
def _converter() -> str:
    return version("vl-convert-python")
