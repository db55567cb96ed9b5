"""Validate the data and the options of an estimator.

Data that scikit-learn would silently misread, for instance masked arrays, raise an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from innerloop.arrays import check_tensor
from innerloop.errors import InputError

LARGEST = 1e150
"""The largest absolute value of an entry of the data; squares of larger ones would overflow."""
LEAST = 1e-140
"""The least maximum of nonzero data; squares of smaller entries would be 0."""


def read_data(estimator: BaseEstimator, X: Any, y: Any = None, **options: Any) -> Any:
    """Return validated rows in float64, together with the labels if `options` has `y_numeric`."""
    named = {"X": X, **({} if y is None else {"y": y})}
    for name, value in named.items():
        check_unmasked(name, value)
    if "y_numeric" in options:
        options["y"] = y
    try:
        # scikit-learn sums all entries to look for NaN, which may overflow without harm.
        with np.errstate(over="ignore", invalid="ignore"):
            read = validate_data(estimator, X, dtype=np.float64, **options)
        arrays: list[Any] = list(read) if isinstance(read, tuple) else [read]
        parts = [np.asarray(part, dtype=np.float64) for part in arrays]
    except OverflowError:
        raise InputError("the data hold a whole number too large for float64: scale them") from None
    for name, part in zip(named, parts, strict=True):
        _check_size(name, part)
    return tuple(parts) if len(parts) > 1 else parts[0]


def check_unmasked(name: str, value: Any) -> None:
    """Raise an error if an array has masked entries, or a tensor cannot be read as an array.

    scikit-learn would ignore the mask.
    """
    if isinstance(value, torch.Tensor):
        check_tensor(value, name)
    if masked := int(np.ma.count_masked(value)) if isinstance(value, np.ma.MaskedArray) else 0:
        raise InputError(f"{name} has {masked} masked entries: fill them or drop their rows")


def check_number(name: str, value: Any, most: float = math.inf) -> float:
    """Return an option as a float; raise an error unless it is above 0 and below `most`."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < most:
        below = "finite" if math.isinf(most) else f"below {most:g}"
        raise InputError(f"{name} must be a number above 0 and {below}, got {value!r}")
    return float(value)


def _check_size(name: str, array: np.ndarray) -> None:
    """Raise an error if the squares of some entries overflow, or those of all entries are 0."""
    largest = float(np.abs(array).max(initial=0.0))
    if largest > LARGEST or 0 < largest < LEAST:
        raise InputError(
            f"{name} has a largest entry of size {largest:.3g}, expected {LEAST:g} to "
            f"{LARGEST:g}: scale the data"
        )
