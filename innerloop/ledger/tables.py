"""Store a list of objects with equal keys as a table, which names each column only once.

    pack_tables([{"n": 1, "loss": 2.0}, {"n": 2, "loss": 1.0}])
    {"$columns": ["n", "loss"], "$rows": [[1, 2.0], [2, 1.0]]}

Nothing is rounded or lost: `unpack_tables` is the inverse, unless the data have a key
"$columns".
"""

from __future__ import annotations

from typing import Any

from innerloop.errors import FileError

COLUMNS, ROWS = "$columns", "$rows"


def pack_tables(value: Any) -> Any:
    """Replace every list of two or more objects with the same keys, at any depth, by a table."""
    if isinstance(value, dict):
        if COLUMNS in value:
            raise ValueError(f"the key {COLUMNS!r} is reserved for tables")
        return {key: pack_tables(part) for key, part in value.items()}
    if not isinstance(value, list | tuple):
        return value
    keys = list(value[0]) if len(value) > 1 and isinstance(value[0], dict) else []
    if keys and all(isinstance(row, dict) and list(row) == keys for row in value):
        rows = [list(pack_tables(row).values()) for row in value]
        return {COLUMNS: keys, ROWS: rows}
    return [pack_tables(part) for part in value]


def unpack_tables(value: Any) -> Any:
    """Restore the argument of `pack_tables`; raise a `FileError` if a table is malformed."""
    if isinstance(value, list):
        return [unpack_tables(part) for part in value]
    if not isinstance(value, dict):
        return value
    if COLUMNS not in value:
        return {key: unpack_tables(part) for key, part in value.items()}
    columns, rows = value[COLUMNS], value.get(ROWS)
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise FileError(f"the columns of a table must be texts, got {columns!r:.60}")
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise FileError(f"the rows of a table must be lists, got {rows!r:.60}")
    if any(len(row) != len(columns) for row in rows):
        raise FileError(f"each row of a table must have its {len(columns)} columns")
    return [dict(zip(columns, map(unpack_tables, row), strict=True)) for row in rows]
