"""Report the state of every run of a sweep: ended, running, not started, or damaged and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.errors import InputError
from innerloop.locations import describe_failure
from innerloop.recipes.listing import describe_folder
from innerloop.recipes.sweeps import PlannedRun, Sweep
from innerloop.training.folder import HISTORY, MODEL
from innerloop.training.history import read_history

NOT_BEGUN = {"state": "not begun", "remark": "", "step": None, "loss": None}


def survey_sweep(sweep: Sweep) -> dict[str, Any]:
    """Return a description of a sweep and its runs; a damaged run is listed with the reason.

    The best run is the finished run with the lowest final loss, or None.
    """
    runs = [_survey_run(sweep, run) for run in sweep.runs]
    ended = [run for run in runs if run["state"] == "finished"]
    best = min(ended, key=lambda run: run["loss"], default=None)
    place = None if best is None else best["folder"]
    return {**sweep.as_dict(), "folder": str(sweep.folder), "runs": runs, "best": place}


def _survey_run(sweep: Sweep, run: PlannedRun) -> dict[str, Any]:
    """Return a description of one run: its settings, state, last measures and history."""
    known = describe_folder(run.folder) if run.folder.is_dir() else NOT_BEGUN
    about = {name: known[name] for name in NOT_BEGUN}
    history: list[dict[str, float]] = []
    measures: dict[str, Any] = {}
    try:
        if about["state"] == "finished":
            measures = sweep.read_row(run) or {}
        if (run.folder / HISTORY).exists():
            growing = not (run.folder / MODEL).exists()
            history = read_history(run.folder / HISTORY, growing=growing)
    except Exception as error:  # a damaged file must not prevent listing the other runs
        reason = str(error) if isinstance(error, InputError) else describe_failure(error)
        about |= {"state": "damaged", "remark": reason.partition("\n")[0]}
    if about["state"] == "damaged":
        about, measures, history = about | {"step": None, "loss": None}, {}, []
    own = (*sweep.grid, "seed", "ended", "batch_loss", *about)
    about |= {name: measures[name] for name in ("step", "loss") if name in measures}
    return {
        "point": run.point,
        "seed": run.seed,
        "folder": _name_place(run.folder, sweep.folder),
        **about,
        "measures": {name: value for name, value in measures.items() if name not in own},
        "history": history,
    }


def _name_place(folder: Path, root: Path) -> str:
    return str(folder.relative_to(root))
