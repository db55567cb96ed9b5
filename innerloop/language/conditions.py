"""Conditions on values: flags of gates are 0 or 1, thresholds are not negative.

A primitive that is what its name says only under a condition records it. The interpreter checks it
wherever a program is run, and ranges.py on the streams of a transformer.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from innerloop.language.errors import CannotCompile

Condition = Literal["0 or 1", "0 or at least 1", "at least 0"]
MAX_ERROR = 1e-4
"""Flags in float32 may be off by this much, and marks, which are points on circles."""
MAX_ERROR_FLOAT64 = 1e-9
"""Flags in float64 may be off by this much."""


def find_error(dtype: torch.dtype) -> float:
    """Return by how much a flag of a type of numbers may be off."""
    return MAX_ERROR_FLOAT64 if dtype == torch.float64 else MAX_ERROR


def find_violations(values: Any, condition: Condition, error: float) -> Any:
    """Return which entries of an array violate a condition by more than an error."""
    if condition == "0 or 1":
        return abs(values * (1 - values)) > error
    below = -values > error
    return below if condition == "at least 0" else below | (values * (1 - values) > error)


def check_number(number: Any, least: int, above: bool, name: str) -> None:
    """Refuse a number that is not at least, or not above, a limit."""
    if number < least or (above and number == least):
        limit = f"{'above' if above else 'at least'} {least}"
        raise CannotCompile(f"{name} must be {limit}, got {float(number):g}")
