"""A training's history as a tidy table: a row for each evaluation, a column for each measure."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.files import write_atomically


def as_csv(history: list[dict[str, Any]]) -> str:
    """The rows as CSV; a measure that a row does not have is empty there."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(history)
    return text.getvalue()


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    write_atomically(path, as_csv(history).encode())


def read_history(path: Path) -> list[dict[str, float]]:
    """The rows that `write_history` wrote."""
    try:
        with path.open(encoding="utf-8") as table:
            return [
                {name: float(value) for name, value in row.items() if value}
                for row in csv.DictReader(table)
            ]
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
