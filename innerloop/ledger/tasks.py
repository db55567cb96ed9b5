"""What an engine can be asked to do: check a cell of a claim, or train a run of a sweep."""

from __future__ import annotations

from typing import Any, Literal

from innerloop.ledger.work import run_cell

Task = Literal["cell", "training"]


def run_task(task: Task, *work: Any) -> str:
    """Do what a worker was sent; what it found is text."""
    if task == "training":
        from innerloop.ledger.sweeping import train_run

        return train_run(*work)
    return run_cell(*work)
