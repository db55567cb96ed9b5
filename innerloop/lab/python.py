"""Write the Python programs on the page, which print the numbers of their scene."""

from __future__ import annotations

from typing import Any

DIGITS = 6
"""Digits after the decimal point of a coordinate; the page sends no more, so programs are exact."""


def format_rows(name: str, rows: list[list[float]], width: int = 4, digits: int = DIGITS) -> str:
    """Return the Python source of an assignment of a list of lists."""
    texts = [format_value(row, digits) for row in rows]
    lines = [", ".join(texts[i : i + width]) for i in range(0, len(texts), width)]
    return f"{name} = [\n" + "".join(f"    {line},\n" for line in lines) + "]"


def format_value(value: Any, digits: int = DIGITS) -> str:
    """Return the Python source of a number or a list of numbers."""
    if isinstance(value, list):
        return "[" + ", ".join(format_value(part, digits) for part in value) + "]"
    return repr(round(value, digits)) if isinstance(value, float) else repr(value)


def format_call(name: str, parameters: dict[str, Any]) -> str:
    """Return the Python source of the call that builds a transformer."""
    words = [f"{key}={value!r}" for key, value in parameters.items()]
    return f"innerloop.build({', '.join([repr(name), *words])})"


def round_points(points: list[list[float]]) -> list[list[float]]:
    """Return the points with coordinates rounded to `DIGITS`, as in the programs."""
    return [[round(part, DIGITS) for part in point] for point in points]
