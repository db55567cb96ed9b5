"""The history of a training run as CSV: one row per evaluation, one column per measure.

Rows are appended to the file during the run, and the whole file is written again at the end. After
a kill, it may have rows after the last checkpoint, and an incomplete row. When a run is resumed,
the file is therefore written again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.links import open_own_file, read_file, remove_file

MAX_BYTES = 64 * 2**20
"""Largest size in bytes of a history that is read; a row has about a hundred bytes."""


def format_csv(history: list[dict[str, Any]]) -> str:
    """Format rows as CSV; a measure that is missing in a row becomes an empty field."""
    columns = list_columns(history)
    header = dict(zip(columns, columns, strict=True))
    return _format_rows([header, *history], columns)


def list_columns(history: list[dict[str, Any]]) -> list[str]:
    """Return the names of all measures, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in history for name in row))


def _format_rows(rows: list[dict[str, Any]], columns: list[str]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    write_atomically(path, format_csv(history).encode())


class GrowingHistory:
    """The history file of a run in progress, to which new rows are appended.

    After a row with a new column, or an error in writing, the whole file is written again. Errors
    are reported to `notice` once and do not end the training.
    """

    def __init__(self, path: Path, notice: Callable[[str], None]) -> None:
        self.path, self._notice = path, notice
        self._columns: list[str] | None = None
        self._count = 0
        self._failed = False

    def update(self, history: list[dict[str, Any]]) -> None:
        """Write the new rows; the first call replaces the file of an earlier process."""
        try:
            self._write(history)
        except (FileError, OSError) as error:
            self._columns = None
            if not self._failed:
                self._notice(f"the history is written only at the end: {error}")
            self._failed = True

    def _write(self, history: list[dict[str, Any]]) -> None:
        fresh = history[self._count :]
        known = self._columns
        if known is not None and all(name in known for row in fresh for name in row):
            with open(self.path, "ab", opener=open_own_file) as file:
                file.write(_format_rows(fresh, known).encode())
        elif history:
            write_history(self.path, history)
            self._columns = list_columns(history)
        else:
            remove_file(self.path)
        self._count = len(history)


def digest_history(history: list[dict[str, Any]]) -> str:
    """Compute the SHA-256 of the file that `write_history` writes."""
    return hashlib.sha256(format_csv(history).encode()).hexdigest()


def read_history(
    path: Path, sha256: str | None = None, *, growing: bool = False
) -> list[dict[str, float]]:
    """Read rows written by `write_history`; raise `FileError` for any other content.

    Args:
        path: The CSV file.
        sha256: The expected result of `digest_history`, if it is known.
        growing: Whether the run may still be in progress: an incomplete last line is then ignored.
    """
    try:
        data = read_file(path, MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    if growing:
        data = data[: data.rfind(b"\n") + 1]
    try:
        history = _parse_history(data)
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError("its rows do not match their SHA-256")
    except (ValueError, csv.Error) as error:
        raise FileError(f"{path} is damaged: {error}") from None
    return history


def _parse_history(data: bytes) -> list[dict[str, float]]:
    """Parse CSV with named columns and numeric fields, in which the steps increase."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    if not data.endswith(b"\n"):
        raise ValueError("it does not end with a whole line: it was cut short")
    lines = csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True)
    columns = next(lines)
    if not {"step", "loss"} <= set(columns) or len(set(columns)) < len(columns):
        raise ValueError(f"expected columns with step and loss, each once, got {columns!r:.80}")
    rows = [_parse_row(columns, fields) for fields in lines]
    if not rows:
        raise ValueError("it has no rows: it was cut short")
    for before, after in itertools.pairwise(rows):
        if after["step"] <= before["step"]:
            raise ValueError(f"step {after['step']:g} comes after step {before['step']:g}")
    return rows


def _parse_row(columns: list[str], fields: list[str]) -> dict[str, float]:
    if len(fields) != len(columns):
        raise ValueError(f"a row has {len(fields)} fields, expected {len(columns)}")
    row = {name: float(field) for name, field in zip(columns, fields, strict=True) if field}
    if not all(math.isfinite(row.get(name, math.nan)) for name in ("step", "loss")):
        raise ValueError(f"a row has no finite step and loss: {','.join(fields)!r:.80}")
    return row
