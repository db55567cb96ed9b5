"""`innerloop report`: write a page about all claims and constructions, or about a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.check import check_with_progress, choose_options, finish_check
from innerloop.commands.options import (
    AsJson,
    Definition,
    EngineName,
    Fresh,
    PresetName,
    Results,
    Seed,
    Workers,
)
from innerloop.errors import InputError
from innerloop.output import print_error, print_json, print_text
from innerloop.results import find_results
from innerloop.terminal import print_certificates, print_outcomes, progress_bar


def report(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="SWEEP",
            help="Folder of a sweep of `train --grid`; the page then describes only this sweep.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write the page to.")
    ] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Also write each figure to this folder as PNG, SVG and CSV.")
    ] = None,
    preset: PresetName = "quick",
    workers: Workers = None,
    engine: EngineName = "local",
    fresh: Fresh = False,
    seed: Seed = 0,
    results: Results = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder of trained runs; by default, the folder `runs` of the results."),
    ] = None,
    definition: Definition = None,
    as_json: AsJson = False,
) -> None:
    """Check every claim, certify every construction, and write one self-contained page.

    Stored results are used if they exist, also those of a larger preset. With
    the folder of a sweep, the page describes only this sweep. The exit code is
    1 if a check raised an error or a certificate does not hold.
    """
    options = {"preset": preset, "workers": workers, "engine": engine, "fresh": fresh, "seed": seed}
    if folder is not None:
        from innerloop.commands.reporting import report_sweep

        refused = {**options, "figures": figures, "runs": runs}
        return report_sweep(folder, output, definition, as_json, refused)
    if definition is not None:
        raise InputError(
            "--definition applies to a sweep: pass the folder of the sweep as the first argument"
        )
    import time

    from innerloop.files import check_writable, write_atomically
    from innerloop.links import resolve_links
    from innerloop.recipes.runs import load_finished_runs
    from innerloop.report.drawing import Drawings
    from innerloop.report.export import make_figure_folder, write_figures
    from innerloop.report.page import draw_charts, render_page
    from innerloop.surveys.survey import measure_report

    chosen = choose_options(results, **options)
    check_writable(output)
    if figures is not None:
        make_figure_folder(figures)
    damaged: list[dict[str, str]] = []

    def note_damage(place: str, reason: str) -> None:
        damaged.append({"folder": place, "reason": reason})
        print_error(f"the run in {place!r} is left out of the report: {reason}")

    finished_runs = list(
        load_finished_runs(runs or find_results(results) / "runs", notice=note_damage)
    )
    start = time.perf_counter()
    checked, unwritten = check_with_progress([], chosen)
    with progress_bar("certifying") as progress:
        data = measure_report(
            [outcome.as_dict() for outcome in checked],
            finished_runs,
            damaged=damaged,
            seed=seed,
            command=f"innerloop report -o {output} --preset {preset} --seed {seed}",
            progress=progress,
            start=start,
        )
    charts = draw_charts(data)
    drawings = Drawings(find_results(results) / "figures")
    write_atomically(resolve_links(output), render_page(data, charts, drawings).encode())
    drawings.tidy()
    if figures is not None:
        with progress_bar("drawing") as progress:
            write_figures(figures, charts, progress)
    if as_json:
        print_json({"path": str(output), **data.as_dict()})
    else:
        print_outcomes(data.outcomes)
        print_certificates(data.certificates)
        print_text(f"report written to {output}")
    if failed := [c["name"] for c in data.certificates if not c["holds"]]:
        print_error(f"these constructions break their law: {', '.join(failed)}")
        raise typer.Exit(1)
    return finish_check(checked, unwritten)
