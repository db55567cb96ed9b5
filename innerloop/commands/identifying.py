"""`innerloop identify SWEEP`: identify every finished run of a sweep and print a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.errors import InputError
from innerloop.output import print_error, print_json, print_text
from innerloop.terminal import format_value, print_table, progress_bar

TABLE = "identified.csv"


def identify_sweep(folder: Path, definition: str | None, as_json: bool, **options: Any) -> None:
    """Identify the algorithm that each finished run of a sweep has learned.

    The verdicts are written as a table to the folder of the sweep. Damaged runs are reported and
    skipped.
    """
    from innerloop.files import write_atomically
    from innerloop.identification.identification import identify
    from innerloop.identification.trained import TrainedModel
    from innerloop.recipes.sweep_survey import survey_sweep
    from innerloop.recipes.sweeps import read_sweep
    from innerloop.training.folder import MODEL
    from innerloop.training.history import format_csv

    sweep = read_sweep(folder, definition)
    survey = survey_sweep(sweep)
    finished = [run for run in survey["runs"] if run["state"] == "finished"]
    for run in survey["runs"]:
        if run["state"] == "damaged":
            print_error(f"the run in {folder / run['folder']} is damaged: {run['remark']}")
    if not finished:
        raise InputError(
            f"{folder} contains no finished run: `innerloop train … --grid` continues a sweep"
        )
    rows: list[dict[str, Any]] = []
    with progress_bar("identifying") as progress:
        for done, run in enumerate(finished):
            progress(done / len(finished), run["folder"])
            model = TrainedModel.read(sweep.folder / run["folder"] / MODEL, definition)
            verdict = identify(model, **options).verdict
            about = {"seed": run["seed"], "loss": run["loss"], "verdict": verdict}
            rows.append({**run["point"], **about})
    k = min(range(len(finished)), key=lambda k: finished[k]["loss"])
    best = {**rows[k], "folder": str(folder / finished[k]["folder"])}
    write_atomically(sweep.folder / TABLE, format_csv(rows).encode())
    if as_json:
        return print_json({"folder": str(folder), "rows": rows, "best": best})
    lines = [[format_value(value, 60) for value in row.values()] for row in rows]
    print_table(f"algorithms of the runs in {folder}", list(rows[0]), lines)
    print_text(f"best run: {best['folder']}, loss {best['loss']:.4g}")
    return print_text(f"written to {folder / TABLE}")
