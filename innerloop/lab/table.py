"""Read tables from CSV text that a user drops on the page; errors name row and column."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

from innerloop.errors import InputError

MAX_COLUMNS, MAX_ROWS = 50, 200
"""The largest number of columns in a file, and the number of rows that are used."""
MAX_TEXT = 1_000_000
"""The largest number of characters in a file."""
DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Table:
    """The column names of a file, the cells of the used rows, and the number of all rows."""

    names: list[str]
    rows: list[list[str]]
    total: int

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        place = self.names.index(name)
        return [row[place] for row in self.rows]

    def numeric(self) -> list[str]:
        """Return the names of the columns with a finite number in every row."""
        return [name for name in self.names if all(map(is_number, self.column(name)))]


def parse_table(text: str) -> Table:
    """Parse a CSV text with or without a header, separated by commas, semicolons or tabs."""
    if len(text) > MAX_TEXT:
        raise InputError(f"a file may have {MAX_TEXT:,} characters, this one has {len(text):,}")
    if "\0" in text:
        raise InputError("expected a text file, but it holds NUL characters")
    first = text.lstrip("\ufeff").partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    try:
        lines = list(csv.reader(io.StringIO(text.lstrip("\ufeff")), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"the file cannot be read as CSV: {error}") from None
    rows = [[cell.strip() for cell in line] for line in lines if any(map(str.strip, line))]
    if not rows:
        raise InputError("the file is empty: expected a header and rows of numbers")
    names = name_columns(rows[0])
    rows = rows if all(map(is_number, rows[0])) else rows[1:]
    if len(rows) < 3:
        raise InputError(f"the file must have at least 3 rows of numbers, got {len(rows)}")
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise InputError(
                f"row {number} has {len(row)} cells, expected {len(names)}: "
                "a separator is missing or too many"
            )
    return Table(names, rows[:MAX_ROWS], len(rows))


def name_columns(first: list[str]) -> list[str]:
    """Return the names of the columns: the header, or "column 1", … without a header."""
    if not 2 <= len(first) <= MAX_COLUMNS:
        raise InputError(f"a table needs 2 to {MAX_COLUMNS} columns, got {len(first)}")
    if all(map(is_number, first)):
        return [f"column {number}" for number in range(1, len(first) + 1)]
    names = [cell or f"column {number}" for number, cell in enumerate(first, 1)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the header has the column {twice!r} twice: rename one of them")
    return names


def is_number(cell: str) -> bool:
    """Return whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
