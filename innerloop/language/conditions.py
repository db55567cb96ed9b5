"""Conditions on values: flags of gates are 0 or 1, and thresholds are not negative.

Some primitives compute the function in their name only under a condition, and they record it. The
interpreter checks the condition whenever a program runs, and ranges.py checks it on the streams of
a transformer.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from innerloop.language.errors import CannotCompile

Condition = Literal["0 or 1", "0 or at least 1", "at least 0"]
MAX_ERROR = 1e-4
"""The largest error of a flag in float32; also of products of marks, which are points on circles.
"""
MAX_ERROR_FLOAT64 = 1e-9
"""The largest error of a flag in float64."""


def find_error(dtype: torch.dtype) -> float:
    """Return the largest error that a flag of this number type may have."""
    return MAX_ERROR_FLOAT64 if dtype == torch.float64 else MAX_ERROR


def find_violations(values: Any, condition: Condition, error: float) -> Any:
    """Return which entries of an array violate a condition by more than `error`."""
    if condition == "0 or 1":
        return abs(values * (1 - values)) > error
    below = -values > error
    return below if condition == "at least 0" else below | (values * (1 - values) > error)


def check_number(number: Any, least: int, above: bool, name: str) -> None:
    """Raise an error if a number is below a limit, or equal to a limit that it must exceed."""
    if number < least or (above and number == least):
        limit = f"{'above' if above else 'at least'} {least}"
        raise CannotCompile(f"{name} must be {limit}, got {float(number):g}")
