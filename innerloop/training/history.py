"""The history of a training run as CSV: one row per evaluation, one column per measure."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.files import write_atomically


def format_csv(history: list[dict[str, Any]]) -> str:
    """Format rows as CSV; a measure that a row lacks is an empty field."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(history)
    return text.getvalue()


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    write_atomically(path, format_csv(history).encode())


def read_history(path: Path) -> list[dict[str, float]]:
    """Read the rows that `write_history` wrote."""
    try:
        with path.open(encoding="utf-8") as table:
            return [
                {name: float(value) for name, value in row.items() if value}
                for row in csv.DictReader(table)
            ]
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
