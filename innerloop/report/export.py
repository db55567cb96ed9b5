"""Figures as files: PNG and SVG for a paper, and their numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import vl_convert

from innerloop.errors import FileError, InputError
from innerloop.files import write_atomically
from innerloop.progress import Progress, ignore_progress
from innerloop.report.page import Chart
from innerloop.surveys.data import Rows

PRINTED_WIDTH = 520
"""Width in pixels of an exported chart that fills the width of the page on screen."""


ENCODERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".html": lambda spec: vl_convert.vegalite_to_html(spec, bundle=True).encode(),
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, scale=2),
    ".svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
}
"""The encoder of a chart for each file extension; an HTML file needs no network."""


def check_format(path: Path) -> None:
    """Refuse a file extension that no chart can be written to, before any work is done for it."""
    if path.suffix not in ENCODERS:
        raise InputError(f"a figure file must end in {', '.join(ENCODERS)}, got {path.name!r}")


def write_chart(path: Path, spec: dict[str, Any]) -> None:
    """Write one chart in the format of the file's extension."""
    check_format(path)
    write_atomically(path, ENCODERS[path.suffix](spec))


def make_folder(folder: Path) -> None:
    """Create a folder for figures, or refuse it before any work is done for them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write figures to {folder}: {error.strerror or error}") from None


def write_figures(
    folder: Path, charts: Mapping[str, Chart], progress: Progress = ignore_progress
) -> None:
    """Write each chart as NAME.png and NAME.svg, and its rows as NAME.csv."""
    for k, (name, chart) in enumerate(charts.items(), 1):
        spec = chart.spec
        if spec.get("width") == "container":
            spec = {**spec, "width": PRINTED_WIDTH}
        for extension in (".svg", ".png"):
            write_chart(folder / f"{name}{extension}", spec)
        write_atomically(folder / f"{name}.csv", _format_csv(chart.rows).encode())
        progress(k / len(charts))


def _format_csv(rows: Rows) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
