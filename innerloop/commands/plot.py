"""`innerloop plot`: draw the loss and other measures of several runs in one figure."""

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
        typer.Argument(metavar="RUN", help="Folders of runs, or folders that contain runs."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The figure: html, png or svg.")
    ] = Path("runs.html"),
    measure: Annotated[
        list[str] | None,
        typer.Option(help="Draw only this measure, for example loss; repeat the option for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the loss and other measures of runs, also of runs that are not finished."""
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
    title = f"{len(runs)} runs, lowest final loss: {best['name']}" if runs[1:] else ""
    write_chart(output, plot_runs(runs, measure, title or runs[0]["name"]).to_dict())
    if as_json:
        rows = [{**run, "folder": str(run["folder"])} for run in runs]
        return print_json({"path": str(output), "best": best["name"], "runs": rows})
    if title:
        print_text(title)
    return print_text(f"figure written to {output}")
