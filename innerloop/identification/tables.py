"""The table of a verdict: a row per layer, as text, as HTML and as a data frame."""

from __future__ import annotations

import html
from io import StringIO
from typing import Any

from innerloop.errors import MissingLibraryError
from innerloop.identification.verdict import NEAR_SHARE

COLUMNS = ["layer", "what it does", "share", "errors alike", "own error", "runner-up", "also fits"]
WIDTH = 160
"""Characters of a line of text, at most."""
LAYER_WIDTH = 11
"""Characters of the first column, at least: "1 embedding" is not broken."""
SHOWN_NUMBERS = 3
LEAST_R2, LEAST_ORDER = 0.9, 0.9
"""Laws that explain less of the variance are not printed. Neither are orders of convergence below
the second number: errors whose order is below 1 stop falling at a floor."""


def build_rows(found: dict[str, Any]) -> list[list[str]]:
    """Build the cells of the table from the dictionary of a verdict."""
    return [
        [
            name_layer(layer),
            layer["does"],
            "" if layer["answers"] else format_score(layer["share"]),
            ""
            if layer["similarity"] is None or layer["share"] < NEAR_SHARE
            else f"{layer['similarity']:.3f}",
            "" if layer["error"] is None else f"{layer['error']:.2g}",
            ""
            if layer["runner_up"] is None or layer["runner_up_share"] < NEAR_SHARE
            else f"{layer['runner_up']} {format_score(layer['runner_up_share'])}",
            ", ".join(layer["also_fits"]),
        ]
        for layer in found["layers"]
    ]


def name_layer(layer: dict[str, Any]) -> str:
    """Return the number of a layer and its name."""
    number, name = str(layer["layer"]), layer["name"]
    return number if name in (f"step {number}", f"layer {number}") else f"{number} {name}"


def build_lines(found: dict[str, Any]) -> list[str]:
    """Build the lines below the table: verdict, fitted numbers, laws, and the nearest
    candidates.
    """
    lines = [f"verdict: {found['verdict']}"]
    for name, value in found["hyperparameters"].items():
        lines.append(f"  {name}: {format_numbers(value)}")
    if relation := found["relation"]:
        fit = relation[relation["better"]]
        if fit["r2"] >= LEAST_R2:
            lines.append(
                f"  steps grow {relation['better']}ly with layers "
                f"(slope {fit['slope']:.3g}, R² {fit['r2']:.3f})"
            )
    order = found["order_of_convergence"]
    if order and order["r2"] >= LEAST_R2 and order["order"] >= LEAST_ORDER:
        lines.append(f"  order of convergence {order['order']:.2f} (R² {order['r2']:.3f})")
    lines += [f"  note: {note}" for note in found["notes"]]
    for layer in found["layers"]:
        near = [each for each in layer["near"] if each["share"] >= NEAR_SHARE]
        if layer["fit"] == "none" and len(near) > 1:
            near = ", ".join(map(_format_near, near))
            lines.append(f"  nearest to layer {layer['layer']}, by share: {near}")
    for layer in found["layers"]:
        if layer["alike"]:
            alike = ", ".join(map(_format_alike, layer["alike"][:SHOWN_NUMBERS]))
            lines.append(f"  over all prompt lengths, layer {layer['layer']} errs as {alike}")
    return lines


def _format_near(near: dict[str, Any]) -> str:
    return f"{_format_step(near)} {format_score(near['share'])}"


def _format_alike(alike: dict[str, Any]) -> str:
    weights = alike["similarity of induced weights"]
    return f"{_format_step(alike)} {alike['similarity of errors']:.2f} (weights {weights:.2f})"


def _format_step(near: dict[str, Any]) -> str:
    step = near["step"]
    return near["candidate"] if step is None else f"{near['candidate']} step {step}"


def format_score(value: float) -> str:
    """Format a score to four decimals, or near 1 by its difference to 1."""
    if value < 0.9999:
        return f"{value:.4f}"
    return "1" if value >= 1 - 1e-12 else f"1 − {1 - value:.0e}"


def format_numbers(value: Any) -> str:
    """Format numbers to four digits; of a list the first three."""
    if isinstance(value, list):
        first = ", ".join(format_numbers(part) for part in value[:SHOWN_NUMBERS])
        return f"[{first}{', …' if len(value) > SHOWN_NUMBERS else ''}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:40]


def format_identification(found: dict[str, Any], title: str = "what the layers do") -> str:
    """Format the table and the lines below it as text."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in COLUMNS:
        least = LAYER_WIDTH if column == COLUMNS[0] else None
        table.add_column(column, overflow="fold", no_wrap=column == COLUMNS[1], min_width=least)
    for row in build_rows(found):
        table.add_row(*map(_make_printable, row))
    out = StringIO()
    Console(file=out, width=WIDTH, highlight=False, markup=False, color_system=None).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join([*lines, *map(_make_printable, build_lines(found))])


def format_html(found: dict[str, Any]) -> str:
    """Format the table and the lines below it as HTML, for notebooks."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in build_rows(found)
    )
    lines = "<br>".join(html.escape(line) for line in build_lines(found))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{lines}</p>"


def make_frame(found: dict[str, Any]) -> Any:
    """Make a pandas data frame with a row per layer."""
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingLibraryError(
            "a data frame needs the pandas library: pip install pandas; "
            "without it, as_dict()['layers'] has the same rows"
        ) from None
    names = (
        *("layer", "name", "fit", "does", "algorithm", "step", "share", "similarity", "error"),
        *("score", "low", "high", "nearest", "free_numbers", "runner_up", "runner_up_share"),
    )
    return pandas.DataFrame([{name: layer[name] for name in names} for layer in found["layers"]])


def _make_printable(text: str) -> str:
    """Escape what would steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
