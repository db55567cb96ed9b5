"""`innerloop plot`: the loss and the measures of several runs as one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.options import AsJson
from innerloop.errors import InputError
from innerloop.output import print_json, print_text


def plot(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Folders of runs, or with runs below them."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The figure: html, png or svg.")
    ] = Path("runs.html"),
    measure: Annotated[
        list[str] | None,
        typer.Option(help="Draw this measure alone, such as loss; repeat for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the loss and the measures of runs, also of those under way."""
    from innerloop.errors import unknown_name_error
    from innerloop.files import check_writable
    from innerloop.recipes.listing import load_curves
    from innerloop.report.curves import list_measures, plot_runs
    from innerloop.report.export import check_format, write_chart

    check_format(output)
    check_writable(output)
    if not places:
        raise InputError("name at least one run to plot")
    runs = load_curves(places)
    known = list_measures(runs)
    for name in measure or []:
        if name not in known:
            raise unknown_name_error("measure", name, known)
    best = min(runs, key=lambda run: run["history"][-1]["loss"])
    title = f"{len(runs)} runs, the lowest loss at the end: {best['name']}" if runs[1:] else ""
    write_chart(output, plot_runs(runs, measure, title or runs[0]["name"]).to_dict())
    if as_json:
        shown = [{**run, "folder": str(run["folder"])} for run in runs]
        return print_json({"path": str(output), "best": best["name"], "runs": shown})
    if title:
        print_text(title)
    return print_text(f"figure written to {output}")
