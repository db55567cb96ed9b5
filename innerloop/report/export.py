"""Figures as files: PNG and SVG to place in a paper, and the numbers behind them as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import vl_convert

from innerloop.errors import FileError, InputError
from innerloop.files import write_atomically
from innerloop.report.figures import Rows
from innerloop.report.page import Drawn

PRINTED_WIDTH = 520
"""How wide a chart is drawn that would fill a page."""


KINDS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".html": lambda spec: vl_convert.vegalite_to_html(spec, bundle=True).encode(),
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, scale=2),
    ".svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
}
"""How a chart is written, by the ending of the file's name; a page holds all it needs."""


def check_kind(path: Path) -> None:
    """Refuse a file that no chart can be written to, before any work is done for it."""
    if path.suffix not in KINDS:
        raise InputError(f"a figure is {', '.join(KINDS)}, got {path.name!r}")


def write_chart(path: Path, spec: dict[str, Any]) -> None:
    """One chart in the form that the file's name asks for."""
    check_kind(path)
    write_atomically(path, KINDS[path.suffix](spec))


def make_folder(folder: Path) -> None:
    """A folder for figures, before any work is done for them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write figures to {folder}: {error.strerror or error}") from None


def write_figures(
    folder: Path,
    charts: Mapping[str, Drawn],
    progress: Callable[[float], None],
) -> None:
    """Each chart as NAME.png and NAME.svg, its rows as NAME.csv."""
    for k, (name, chart) in enumerate(charts.items(), 1):
        spec = chart.spec
        if spec.get("width") == "container":
            spec = {**spec, "width": PRINTED_WIDTH}
        for kind in (".svg", ".png"):
            write_chart(folder / f"{name}{kind}", spec)
        write_atomically(folder / f"{name}.csv", _csv(chart.rows).encode())
        progress(k / len(charts))


def _csv(rows: Rows) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
