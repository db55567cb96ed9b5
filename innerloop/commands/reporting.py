"""`innerloop report SWEEP`: a page with the table of a sweep, one figure and its best run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.errors import InputError
from innerloop.output import print_json, print_text

DEFAULTS = {"preset": "quick", "engine": "local", "fresh": False, "seed": 0}
"""Options of the report on all claims that are not None unless given."""


def report_sweep(
    folder: Path, output: Path, definition: str | None, as_json: bool, options: dict[str, Any]
) -> None:
    """Write the page of a sweep; `options` of the report on all claims are refused, if given."""
    from innerloop.files import check_writable, write_atomically
    from innerloop.recipes.sweep_survey import survey_sweep
    from innerloop.recipes.sweeps import SWEEP_FILE, is_sweep, read_sweep
    from innerloop.report.sweep import render_sweep

    given = [f"--{name}" for name, value in options.items() if value != DEFAULTS.get(name)]
    if given:
        raise InputError(
            f"{', '.join(given)}: for the report on all claims; leave it out for a sweep"
        )
    if not is_sweep(folder):
        what = f"no {SWEEP_FILE} in it" if folder.is_dir() else "it is no folder"
        raise InputError(
            f"{folder} holds no sweep: {what}; `innerloop train --grid` makes one, and without a "
            "name the report is on all claims"
        )
    check_writable(output)
    survey = survey_sweep(read_sweep(folder, definition))
    page = render_sweep(survey, f"innerloop report {folder} -o {output}")
    write_atomically(output, page.encode())
    if as_json:
        return print_json({"path": str(output), **_leave_histories(survey)})
    runs = survey["runs"]
    for run in runs:
        if run["state"] == "damaged":
            print_text(f"{run['folder']} is damaged: {run['remark']}")
    best = next((run for run in runs if run["folder"] == survey["best"]), None)
    if best is None:
        print_text(f"none of {len(runs)} runs is finished")
    else:
        print_text(f"best run: {folder / best['folder']}, loss {best['loss']:.4g}")
    return print_text(f"report written to {output}")


def _leave_histories(survey: dict[str, Any]) -> dict[str, Any]:
    """Leave out the histories, which the folders of the runs have."""
    runs = [{k: v for k, v in run.items() if k != "history"} for run in survey["runs"]]
    return {**survey, "runs": runs}
