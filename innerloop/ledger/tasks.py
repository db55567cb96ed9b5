"""The two tasks that a worker can run: a cell of a claim, or a run of a sweep."""

from __future__ import annotations

from typing import Any, Literal

from innerloop.ledger.work import run_cell

Task = Literal["cell", "training"]


def run_task(task: Task, *work: Any) -> str:
    """Run a task in a worker and return its result as JSON text."""
    if task == "training":
        from innerloop.ledger.sweeping import train_run

        return train_run(*work)
    return run_cell(*work)
