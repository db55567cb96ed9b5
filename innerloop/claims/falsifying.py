"""Data that contradict a statement, for claims whose data are rows with named columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = list[dict[str, Any]]


def change_column(name: str, change: Callable[[Any], Any]) -> Callable[[Rows], Rows]:
    """Make a falsified form that changes one column in every row that has it."""

    def falsify(rows: Rows) -> Rows:
        return [{**row, name: change(row[name])} if name in row else row for row in rows]

    return falsify
