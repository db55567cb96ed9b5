"""`innerloop runs`: list trainings."""

from __future__ import annotations

from innerloop.commands.options import AsJson, Results
from innerloop.output import print_error, print_json, print_text
from innerloop.results import find_results
from innerloop.terminal import format_duration, print_table

COLUMNS = ["run", "recipe", "state", "step", "loss", "time"]


def runs(results: Results = None, as_json: AsJson = False) -> None:
    """List finished and running trainings with their state, last loss and duration."""
    from innerloop.recipes.listing import list_runs

    root = find_results(results) / "runs"

    def note_damage(place: str, reason: str) -> None:
        print_error(f"{place}: {reason}")

    runs = list(list_runs(root, note_damage))
    if as_json:
        return print_json(runs)
    if not runs:
        return print_text(f"no runs in {root}: `innerloop train NAME` makes one")
    rows = []
    for run in runs:
        step, steps, loss, seconds = (run[name] for name in ("step", "steps", "loss", "seconds"))
        of = f" of {steps:g}" if steps is not None else ""
        rows.append(
            [
                run["folder"],
                run["recipe"],
                run["state"],
                "" if step is None else f"{step:g}{of}",
                "" if loss is None else f"{loss:.4g}",
                "" if seconds is None else format_duration(seconds),
            ]
        )
    print_table(f"runs in {root}", COLUMNS, rows)
    for run in runs:
        if run["remark"]:
            print_text(f"{run['folder']}: {run['remark']}")
    return None
