"""`innerloop report SWEEP`: write a page with the table, a figure and the best run of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.errors import InputError
from innerloop.output import print_json, print_text

DEFAULTS = {"preset": "quick", "engine": "local", "fresh": False, "seed": 0}
"""Default values of those options of the report on all claims whose default is not None."""


def report_sweep(
    folder: Path, output: Path, definition: str | None, as_json: bool, options: dict[str, Any]
) -> None:
    """Write the page of a sweep; raise an error if an option of the other report is set."""
    from innerloop.files import check_writable, write_atomically
    from innerloop.links import resolve_links
    from innerloop.recipes.sweep_survey import survey_sweep
    from innerloop.recipes.sweeps import SWEEP_FILE, is_sweep, read_sweep
    from innerloop.report.sweep import render_sweep

    changed = [f"--{name}" for name, value in options.items() if value != DEFAULTS.get(name)]
    if changed:
        raise InputError(
            f"{', '.join(changed)} applies to the report on all claims; leave it out for a sweep"
        )
    if not is_sweep(folder):
        reason = f"it contains no {SWEEP_FILE}" if folder.is_dir() else "it is not a folder"
        raise InputError(
            f"expected the folder of a sweep, got {folder}: {reason}. `innerloop train --grid` "
            "makes a sweep; without an argument, the report is about all claims"
        )
    check_writable(output)
    survey = survey_sweep(read_sweep(folder, definition))
    page = render_sweep(survey, f"innerloop report {folder} -o {output}")
    write_atomically(resolve_links(output), page.encode())
    if as_json:
        return print_json({"path": str(output), **_leave_histories(survey)})
    runs = survey["runs"]
    for run in runs:
        if run["state"] == "damaged":
            print_text(f"{run['folder']} is damaged: {run['remark']}")
    best = next((run for run in runs if run["folder"] == survey["best"]), None)
    if best is None:
        print_text(f"no run of {len(runs)} is finished")
    else:
        print_text(f"best run: {folder / best['folder']}, loss {best['loss']:.4g}")
    return print_text(f"report written to {output}")


def _leave_histories(survey: dict[str, Any]) -> dict[str, Any]:
    """Remove the histories, which are stored in the folders of the runs."""
    runs = [{k: v for k, v in run.items() if k != "history"} for run in survey["runs"]]
    return {**survey, "runs": runs}
