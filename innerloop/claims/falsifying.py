"""Data that contradict a statement, for claims whose data are rows or objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

Rows = list[dict[str, Any]]


def change_column(name: str, change: Callable[[Any], Any]) -> Callable[[Rows], Rows]:
    """Make a falsified form that changes one column in every row that has it."""

    def falsify(rows: Rows) -> Rows:
        return [{**row, name: change(row[name])} if name in row else row for row in rows]

    return falsify


def change_field(path: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a falsified form that changes a field: "steps.error" is `error` of each of `steps`.

    Objects are dataclasses or named tuples, data is one of them or a list; None stays None.
    """
    first, _, rest = path.partition(".")
    deeper = change_field(rest, change) if rest else change

    def falsify(data: Any) -> Any:
        if isinstance(data, list):
            return [falsify(each) for each in data]
        value = getattr(data, first)
        given = {first: value if value is None else deeper(value)}
        named: Any = data  # a named tuple, whose class pyright cannot know
        return named._replace(**given) if isinstance(data, tuple) else replace(named, **given)

    return falsify
