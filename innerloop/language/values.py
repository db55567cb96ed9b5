"""Values of the interpreter: arrays of floats (torch) or of rational numbers (NumPy objects).

A value of shape s is an array (*batch, tokens, keys, *s). What depends on this token alone has one
key, what depends on another token alone has one token, numbers have one of both: broadcasting does
the rest. Nothing here is used by the compiler.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.language.errors import CannotCompile
from innerloop.language.refusals import PRODUCTS, Refusing, describe_kind
from innerloop.language.types import to_fraction
from innerloop.transformer.pieces import sum_hinges

ZERO: Any = Fraction(0)
MAX_TABLE = 32
"""More hinges than this are summed by a search for the right line, not one by one."""
Array = Any
"""A float tensor, or a NumPy array of Fractions."""


def convert_like(array: Array, value: Any) -> Array:
    """Convert numbers to the kind of an array."""
    if isinstance(array, Tensor):
        if isinstance(value, Tensor):
            return value.to(array)
        return torch.as_tensor(np.asarray(value, dtype=float)).to(array)
    entries = np.asarray(value, dtype=object)
    return np.array([to_fraction(v) for v in entries.ravel()], dtype=object).reshape(entries.shape)


class Value(Refusing):
    """A number, vector or matrix of this token, of another one, of both, or of none.

    A `constant` is a number of the program, which Python may compare and convert.
    """

    def __init__(self, array: Array, shape: tuple[int, ...], constant: bool = False) -> None:
        self.array = array
        self.shape = shape
        self.constant = constant

    def _align(self, other: Any) -> tuple[Array, Array, tuple[int, ...]]:
        """Return both arrays, their trailing dimensions aligned, and the shape of the result."""
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
        constant = self.constant and (not isinstance(other, Value) or other.constant)
        return Value(operation(a, b), shape, constant)

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
        return Value(self.array**power, self.shape, self.constant)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Value:
        return Value(-self.array, self.shape, self.constant)

    def __abs__(self) -> Value:
        return Value(abs(self.array), self.shape, self.constant)

    def __getitem__(self, index: int) -> Value:
        rest = self.shape[1:]
        return Value(self.array[(..., index, *(slice(None),) * len(rest))], rest)

    def __iter__(self) -> Iterator[Value]:
        return iter([self[i] for i in range(self.shape[0])])

    def __float__(self) -> float:
        if not self.constant:
            self._refuse_number()
        return float(self.array.reshape(-1)[0])

    def __bool__(self) -> bool:
        return self != 0 if self.constant else super().__bool__()

    def _decide(self, other: Any, compare: Callable[[Any, Any], Any]) -> bool:
        """Compare a number of the program; where there are several, all must say the same."""
        if not self.constant or (isinstance(other, Value) and not other.constant):
            return self._compare(other)
        a, b, _ = self._align(other)
        found = {bool(each) for each in np.ravel(np.asarray(compare(a, b)))}
        if len(found) > 1:
            raise CannotCompile("a branch on a number that differs from prompt to prompt")
        return found.pop()

    def __lt__(self, other: Any) -> bool:
        return self._decide(other, operator.lt)

    def __gt__(self, other: Any) -> bool:
        return self._decide(other, operator.gt)

    def __le__(self, other: Any) -> bool:
        return self._decide(other, operator.le)

    def __ge__(self, other: Any) -> bool:
        return self._decide(other, operator.ge)

    def __eq__(self, other: Any) -> bool:
        return self._decide(other, operator.eq)

    def __ne__(self, other: Any) -> bool:
        return self._decide(other, operator.ne)

    __hash__ = Refusing.__hash__

    def contract(self, other: Value, operation: str) -> Value:
        """Multiply by `dot`, `outer` or `matvec`."""
        a, b = self.array, other.array
        if operation == "dot":
            return Value((a * b).sum(-1), ())
        if operation == "outer":
            return Value(a[..., :, None] * b[..., None, :], self.shape + other.shape)
        return Value((a * b[..., None, :]).sum(-1), self.shape[:1])

    def transpose(self) -> Value:
        """Swap rows and columns."""
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
        """max(x, 0) on every entry."""
        if isinstance(self.array, Tensor):
            return Value(self.array.clamp_min(0), self.shape)
        return Value(np.maximum(self.array, ZERO), self.shape)

    def sum_hinges(self, slope: Sequence[Any], bias: Sequence[Any], weight: Sequence[Any]) -> Value:
        """Σ_k weight_k max(slope_k x + bias_k, 0) on every entry."""
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
        if isinstance(vector, Value):
            if not isinstance(vector.array, Tensor):
                entries = np.array(self.to_rows(), dtype=object)
            else:
                entries = convert_like(vector.array, self.entries)
                if entries.ndim > 2:  # one matrix per instance
                    entries = entries[..., None, None, :, :]
            product = (entries * vector.array[..., None, :]).sum(-1)
            return Value(product, (self.entries.shape[-2],))
        if not isinstance(vector, Refusing):
            raise CannotCompile(f"a matrix times {describe_kind(vector)}: {PRODUCTS}")
        return vector.apply_matrix(self.to_rows())  # pyright: ignore[reportAttributeAccessIssue]

    def to_rows(self) -> list[list[Fraction]]:
        """Return the entries as rational numbers."""
        return [[Fraction(c) for c in row] for row in np.asarray(self.entries).tolist()]

    @property
    def T(self) -> Matrix:  # noqa: N802, as in NumPy
        return Matrix(self.entries.swapaxes(-1, -2))
