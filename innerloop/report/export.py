"""Write figures as PNG and SVG files, and their numbers as CSV files."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import vl_convert

from innerloop.errors import FileError, InputError
from innerloop.files import write_atomically
from innerloop.links import make_folder, resolve_links
from innerloop.progress import Progress, ignore_progress
from innerloop.report.escaping import clean, fill_template, inline_json, load_bundle
from innerloop.report.page import Chart
from innerloop.surveys.data import Rows

PRINTED_WIDTH = 520
"""The width in pixels of an exported chart whose width on the page depends on the window."""


MAX_NAME = 100
"""The largest number of characters that the names of files take from the name of a chart."""

ENCODERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".html": lambda spec: render_chart(spec).encode(),
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, scale=2),
    ".svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
}
"""The encoder of a chart for each file extension; an HTML file needs no network."""

DRAWING_ENCODERS: dict[str, Callable[[str], bytes]] = {
    ".png": lambda svg: vl_convert.svg_to_png(svg, scale=2),
    ".svg": lambda svg: svg.encode(),
}
"""The encoder of a drawing for each file extension."""


def check_format(path: Path) -> None:
    """Raise `InputError` for a file extension that charts do not support."""
    if path.suffix not in ENCODERS:
        raise InputError(f"a figure file must end in {', '.join(ENCODERS)}, got {path.name!r}")


def write_chart(path: Path, spec: dict[str, Any]) -> None:
    """Write one chart to a path that the user named, in the format of its extension."""
    write_atomically(resolve_links(path), encode_chart(path, spec))


def encode_chart(path: Path, spec: dict[str, Any]) -> bytes:
    """Encode one chart in the format that the extension of `path` names."""
    check_format(path)
    try:
        return ENCODERS[path.suffix](clean(spec))
    except ValueError as error:  # of the converter, such as an image that is too wide
        reason = " ".join(str(error).split())[:200]
        raise FileError(
            f"cannot draw {path}: {reason}; a figure as .html does not need an image library"
        ) from None


def check_drawing_format(path: Path) -> None:
    """Raise `InputError` for a file extension that drawings do not support."""
    if path.suffix not in DRAWING_ENCODERS:
        known = " or ".join(DRAWING_ENCODERS)
        raise InputError(f"a file of a program's diagram must end in {known}, got {path.name!r}")


def write_drawing(path: Path, svg: str) -> None:
    """Write an SVG drawing in the format of the file's extension."""
    check_drawing_format(path)
    write_atomically(resolve_links(path), DRAWING_ENCODERS[path.suffix](svg))


def render_chart(spec: dict[str, Any]) -> str:
    """Render one chart as a page that needs no network."""
    return fill_template(
        "chart.html", title="innerloop", bundle=load_bundle(), chart=inline_json(spec)
    )


def make_figure_folder(folder: Path) -> None:
    """Create a folder for figures, or raise an error before any work starts."""
    try:
        make_folder(resolve_links(folder))
    except OSError as error:
        raise FileError(f"cannot write figures to {folder}: {error.strerror or error}") from None


def write_figures(
    folder: Path, charts: Mapping[str, Chart], progress: Progress = ignore_progress
) -> None:
    """Write each chart as NAME.png and NAME.svg, and its rows as NAME.csv; a link is an error."""
    folder = resolve_links(folder)
    for k, (name, chart) in enumerate(charts.items(), 1):
        spec = chart.spec
        if spec.get("width") == "container":
            spec = {**spec, "width": PRINTED_WIDTH}
        place = name_file(name)
        for extension in (".svg", ".png"):
            path = folder / f"{place}{extension}"
            write_atomically(path, encode_chart(path, spec))
        write_atomically(folder / f"{place}.csv", _format_csv(clean(chart.rows)).encode())
        progress(k / len(charts))


def name_file(name: str) -> str:
    """Return the name of a chart's files, without characters that could lead out of the folder.

    The name may contain the path of a user's own recipe, or any text from the file of a run.
    """
    if re.fullmatch(r"\w[\w.-]*", name, re.ASCII) and len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^a-zA-Z0-9]+', '-', name)[:MAX_NAME].strip('-')}-{digest}"


def _format_csv(rows: Rows) -> str:
    """Format rows as CSV."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
