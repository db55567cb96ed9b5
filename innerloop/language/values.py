"""Values of the interpreter: arrays of floats (torch) or of rational numbers (NumPy objects).

A value of shape s is an array (*batch, tokens, keys, *s). A value that depends on this token only
has one key, a value that depends on another token only has one token, and a number has one of both;
broadcasting combines them. The compiler uses only the constant matrices of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.language.errors import CannotCompile
from innerloop.language.floats import describe_size, is_representable
from innerloop.language.refusals import Refusing, refuse_factor
from innerloop.language.types import to_fraction
from innerloop.transformer.pieces import sum_hinges

ZERO: Any = Fraction(0)
MAX_TABLE = 32
"""If there are more hinges than this, the right line is searched for instead of summing all of
them.
"""
Array = Any
"""A float tensor, or a NumPy array of Fractions."""


def convert_like(array: Array, value: Any) -> Array:
    """Convert numbers to the kind of an array."""
    if isinstance(array, Tensor):
        if isinstance(value, Tensor):
            return value.to(array)
        if isinstance(value, Fraction) and not is_representable(value):
            raise CannotCompile(describe_size(value))
        return torch.as_tensor(np.asarray(value, dtype=float)).to(array)
    entries = np.asarray(value, dtype=object)
    return np.array([to_fraction(v) for v in entries.ravel()], dtype=object).reshape(entries.shape)


class Value:
    """A number, vector or matrix of this token, of another one, of both, or of none."""

    def __init__(self, array: Array, shape: tuple[int, ...]) -> None:
        self.array = array
        self.shape = shape

    def _align(self, other: Any) -> tuple[Array, Array, tuple[int, ...]]:
        """Return both arrays with aligned trailing dimensions, and the shape of the result."""
        if not isinstance(other, Value):
            return self.array, convert_like(self.array, other), self.shape
        a, b = self.array, other.array
        if len(self.shape) < len(other.shape):
            a = a.reshape(tuple(a.shape) + (1,) * len(other.shape))
        if len(other.shape) < len(self.shape):
            b = b.reshape(tuple(b.shape) + (1,) * len(self.shape))
        return a, b, self.shape or other.shape

    def _apply(self, other: Any, operation: Callable[[Array, Array], Array]) -> Value:
        a, b, shape = self._align(other)
        return Value(operation(a, b), shape)

    def __add__(self, other: Any) -> Value:
        return self._apply(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Value:
        return self._apply(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Value:
        return self._apply(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Value:
        return self._apply(other, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Value:
        return self._apply(other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Value:
        return self._apply(other, lambda a, b: b / a)

    def __pow__(self, power: Any) -> Value:
        if isinstance(power, Value):
            return self._apply(power, lambda a, b: a**b)
        exact = to_fraction(power)
        exponent = int(exact) if exact.denominator == 1 else float(exact)
        return Value(self.array**exponent, self.shape)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Value:
        return Value(-self.array, self.shape)

    def __abs__(self) -> Value:
        return Value(abs(self.array), self.shape)

    def __getitem__(self, index: int) -> Value:
        rest = self.shape[1:]
        return Value(self.array[(..., index, *(slice(None),) * len(rest))], rest)

    def contract(self, other: Value, operation: str) -> Value:
        """Multiply by `dot`, `outer` or `matvec`."""
        a, b = self.array, other.array
        if operation == "dot":
            return Value((a * b).sum(-1), ())
        if operation == "outer":
            return Value(a[..., :, None] * b[..., None, :], self.shape + other.shape)
        return Value((a * b[..., None, :]).sum(-1), self.shape[:1])

    def transpose(self) -> Value:
        """Exchange rows and columns."""
        return Value(self.array.swapaxes(-1, -2), self.shape[::-1])

    def stack(self, rows: Sequence[Value]) -> Value:
        """Stack values of one shape along a new first dimension."""
        lead = np.broadcast_shapes(*(tuple(row.array.shape) for row in rows))
        places = len(lead) - len(self.shape)
        if isinstance(self.array, Tensor):
            array = torch.stack([row.array.expand(lead) for row in rows], dim=places)
        else:
            array = np.stack([np.broadcast_to(row.array, lead) for row in rows], axis=places)
        return Value(array, (len(rows), *self.shape))

    def sum_entries(self) -> Value:
        """Add up the entries of a vector."""
        return Value(self.array.sum(-1), self.shape[:-1])

    def rectify(self) -> Value:
        """Return max(x, 0) for every entry."""
        if isinstance(self.array, Tensor):
            return Value(self.array.clamp_min(0), self.shape)
        return Value(np.maximum(self.array, ZERO), self.shape)

    def sum_hinges(self, slope: Sequence[Any], bias: Sequence[Any], weight: Sequence[Any]) -> Value:
        """Return Σ_k weight_k max(slope_k x + bias_k, 0) for every entry x."""
        s, b, w = (convert_like(self.array, list(part)) for part in (slope, bias, weight))
        if isinstance(s, Tensor) and len(s) > MAX_TABLE:
            return Value(sum_hinges(self.array, s, b, w), self.shape)
        hidden = self.array[..., None] * s + b
        if isinstance(hidden, Tensor):
            return Value(hidden.clamp_min(0) @ w, self.shape)
        return Value((np.maximum(hidden, ZERO) * w).sum(-1), self.shape)


class Matrix:
    """A constant matrix of the program; `A @ v` for a vector v of a token."""

    def __init__(self, entries: Array) -> None:
        self.entries = entries

    def __matmul__(self, vector: Any) -> Any:
        if isinstance(vector, Refusing):
            return NotImplemented  # it is recorded by the vector
        if not isinstance(vector, Value):
            apply = getattr(vector, "apply_matrix", None)
            return refuse_factor(vector) if apply is None else apply(self.to_rows())
        if not isinstance(vector.array, Tensor):
            entries = np.array(self.to_rows(), dtype=object)
        else:
            entries = convert_like(vector.array, self.entries)
            if entries.ndim > 2:  # one matrix per instance
                entries = entries[..., None, None, :, :]
        product = (entries * vector.array[..., None, :]).sum(-1)
        return Value(product, (self.entries.shape[-2],))

    def to_rows(self) -> list[list[Fraction]]:
        """Return the entries as rational numbers."""
        return [[Fraction(c) for c in row] for row in np.asarray(self.entries).tolist()]

    @property
    def T(self) -> Matrix:  # noqa: N802, as in NumPy
        return Matrix(self.entries.swapaxes(-1, -2))
