"""`innerloop identify SWEEP`: the verdict on every finished run of a sweep, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.errors import InputError
from innerloop.output import print_json, print_text
from innerloop.terminal import format_value, print_table, progress_bar

TABLE = "identified.csv"


def identify_sweep(folder: Path, definition: str | None, as_json: bool, **options: Any) -> None:
    """Identify each finished run of a sweep; the table is also kept in its folder."""
    from innerloop.files import write_atomically
    from innerloop.identification.identification import identify
    from innerloop.identification.loading import load_model
    from innerloop.recipes.sweeps import SweepResult, read_sweep
    from innerloop.training.folder import MODEL
    from innerloop.training.history import format_csv

    result = SweepResult.read(read_sweep(folder, definition))
    finished = [run for run in result.sweep.runs if (run.folder / MODEL).exists()]
    if not finished or result.best is None:
        raise InputError(f"{folder} holds no finished run")
    rows: list[dict[str, Any]] = []
    with progress_bar("identifying") as progress:
        for done, run in enumerate(finished):
            progress(done / len(finished), str(run.folder.relative_to(folder)))
            found = identify(load_model(str(run.folder), definition), **options)
            loss = result.ended.get(run.folder, {}).get("loss")
            rows.append({**run.point, "seed": run.seed, "loss": loss, "verdict": found.verdict})
    write_atomically(folder / TABLE, format_csv(rows).encode())
    if as_json:
        return print_json({"folder": str(folder), "rows": rows, "best": result.best})
    lines = [[format_value(value, 60) for value in row.values()] for row in rows]
    print_table(f"what the runs of {folder} do", list(rows[0]), lines)
    print_text(f"best run: {result.best['folder']}, loss {result.best['loss']:.4g}")
    return print_text(f"written to {folder / TABLE}")
