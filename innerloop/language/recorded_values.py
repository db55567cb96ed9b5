"""The values that a function of a program computes with during recording: tokens, values, numbers.

Each operation adds an instruction to the recorder. Values know their shape and the token that they
belong to. Operations of arrays that no transformer computes raise an error (refusals.py).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from innerloop.language import shapes
from innerloop.language.errors import CannotCompile
from innerloop.language.record import Slot
from innerloop.language.refusals import Refusing, describe_kind, refuse_factor
from innerloop.language.types import to_fraction
from innerloop.language.values import Matrix, Value

if TYPE_CHECKING:
    from innerloop.language.recorder import Recorder


class Token:
    """The token `me`, whose registers are read and assigned, or the token of a sum, which is
    only read.

    Registers are attributes, or entries by name if the name is computed: `me[f"V{k}"]`.
    """

    def __init__(self, recorder: Recorder, other: bool = False) -> None:
        object.__setattr__(self, "__recorder__", recorder)
        object.__setattr__(self, "__other__", other)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return vars(self)["__recorder__"].read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if is_other(self):
            raise CannotCompile(
                f"a token writes to itself alone: assign to me.{name}, not j.{name}"
            )
        vars(self)["__recorder__"].write(name, value)

    def __delattr__(self, name: str) -> None:
        raise CannotCompile(f"a register cannot be deleted: assign 0 to me.{name}")

    def __eq__(self, other: object) -> bool:
        raise CannotCompile(
            "a comparison of tokens: a sum treats all tokens alike. Use own_total for this token "
            "alone, or where= with a register that differs"
        )

    __hash__ = object.__hash__


def is_other(token: Token) -> bool:
    """Return whether a token is that of a sum, and not `me`."""
    return vars(token)["__other__"]


def is_value(value: Any) -> bool:
    """Return whether an object is a value of a token, and not a number."""
    return isinstance(value, Recorded) and not isinstance(value, RecordedNumber)


class Recorded(Refusing):
    """A number, vector or matrix of this token, or of the token of a sum."""

    def __init__(
        self, recorder: Recorder, slot: Slot, shape: shapes.Shape, token: Token | None
    ) -> None:
        self.recorder, self.slot, self.shape, self.token = recorder, slot, shape, token

    def _combine(self, operation: str, left: Any, right: Any) -> Recorded:
        """Combine two values entry by entry, or a value with a number."""
        sides = [s if isinstance(s, Recorded) else to_fraction(s) for s in (left, right)]
        own = [side.shape for side in sides if isinstance(side, Recorded)]
        shape = shapes.broadcast(own[0], own[-1])
        return self.recorder.make(operation, *sides, shape=shape)

    def __add__(self, other: Any) -> Recorded:
        return self._combine("add", self, other)

    def __radd__(self, other: Any) -> Recorded:
        return self._combine("add", self, other)

    def __sub__(self, other: Any) -> Recorded:
        return self._combine("subtract", self, other)

    def __rsub__(self, other: Any) -> Recorded:
        return self._combine("subtract", other, self)

    def __mul__(self, other: Any) -> Recorded:
        return self._combine("multiply", self, other)

    def __rmul__(self, other: Any) -> Recorded:
        return self._combine("multiply", self, other)

    def __truediv__(self, other: Any) -> Recorded:
        if isinstance(other, Recorded) and not isinstance(other, RecordedNumber):
            return other.__rtruediv__(self)
        if not isinstance(other, Recorded) and to_fraction(other) == 0:
            raise CannotCompile("a division by a number that is 0 with these parameters")
        return self._combine("divide", self, other)

    def __rtruediv__(self, other: Any) -> Recorded:
        raise CannotCompile(
            "a division by a value, which no block does. Use piecewise(x, f, knots) for 1/x, "
            "Newton steps g ← g(2 − xg) on it, or softmax, which normalises"
        )

    def __pow__(self, power: Any) -> Recorded:
        raise CannotCompile(
            "a power of a value: write the product, or piecewise(x, lambda x: x**2, knots)"
        )

    def __rmatmul__(self, other: Any) -> Any:
        if isinstance(other, Matrix):
            return apply_matrix(other, tuple(other.entries.shape[-2:]), self)
        return super().__rmatmul__(other)

    def __neg__(self) -> Recorded:
        return self._derive("negate")

    def __abs__(self) -> Recorded:
        return self._derive("magnitude")

    def _derive(self, operation: str) -> Recorded:
        return self.recorder.make(operation, self, shape=self.shape)

    def __getitem__(self, index: Any) -> Recorded:
        place = shapes.find_entry(self.shape, index)
        return self.recorder.make("entry", self, place, shape=self.shape[1:])

    def __iter__(self) -> Iterator[Recorded]:
        if not self.shape:
            raise CannotCompile("iterating over one number")
        return iter([self[i] for i in range(self.shape[0])])

    def contract(self, other: Any, operation: str) -> Recorded:
        """Multiply by `dot`, `outer` or `matvec`."""
        if not is_value(other):
            raise CannotCompile(f"{operation} of a value and {describe_kind(other)}: give vectors")
        shape = shapes.find_product_shape(operation, self.shape, other.shape)
        return self.recorder.make("product", operation, self, other, shape=shape)

    def transpose(self) -> Recorded:
        """Swap rows and columns."""
        shape = shapes.find_transposed_shape(self.shape)
        return self.recorder.make("transpose", self, shape=shape)

    def stack(self, rows: Sequence[Any]) -> Recorded:
        """Stack values of one shape along a new first dimension."""
        shape = shapes.find_stacked_shape([row.shape for row in rows])
        return self.recorder.make("stack", list(rows), shape=shape)

    def sum_entries(self) -> Recorded:
        """Add up the entries of a vector."""
        if len(self.shape) != 1:
            raise CannotCompile(f"the sum of entries of a value of shape {self.shape}")
        return self.recorder.make("sum_entries", self, shape=())

    def rectify(self) -> Recorded:
        """max(x, 0) on every entry."""
        return self._derive("rectify")

    def sum_hinges(self, *net: Sequence[Any]) -> Recorded:
        """Σ_k weight_k relu(slope_k x + bias_k) on every entry."""
        parts = [[to_fraction(each) for each in part] for part in net]
        return self.recorder.make("sum_hinges", self, *parts, shape=self.shape)


class RecordedNumber(Recorded):
    """A number of the program, or a result computed from such numbers.

    Python may compare, round and convert it; the record is then valid for these numbers only.
    """

    compares = True

    def __init__(self, recorder: Recorder, slot: Slot) -> None:
        super().__init__(recorder, slot, (), None)

    def _combine(self, operation: str, left: Any, right: Any) -> Recorded:
        if is_value(left) or is_value(right):
            return super()._combine(operation, left, right)
        sides = [s if isinstance(s, Recorded) else to_fraction(s) for s in (left, right)]
        slot = self.recorder.add(operation, *sides, is_number=True)
        return RecordedNumber(self.recorder, slot)

    def _derive(self, operation: str) -> Recorded:
        return RecordedNumber(self.recorder, self.recorder.add(operation, self, is_number=True))

    def __rtruediv__(self, other: Any) -> Recorded:
        return self._combine("divide", other, self)

    def __pow__(self, power: Any) -> Recorded:
        if is_value(power):
            return power.__rpow__(self)
        return self._combine("power", self, power)

    def __rpow__(self, base: Any) -> Any:
        return base ** self._convert()

    def _decide(self, other: Any, compare: Callable[[Any, Any], Any]) -> bool:
        """Compare with a number; if it has a value for each prompt, all prompts must agree."""
        if is_value(other):
            return self._compare(other)
        mine = self.recorder.evaluate(self)
        if isinstance(other, RecordedNumber):
            other = self.recorder.evaluate(other)
        elif not (isinstance(other, float) and not math.isfinite(other)):
            other = to_fraction(other)
        if not isinstance(mine, Value) and not isinstance(other, Value):
            return bool(compare(mine, other))
        sides = (np.asarray(getattr(each, "array", each), dtype=float) for each in (mine, other))
        outcomes = {bool(each) for each in np.ravel(compare(*sides))}
        if len(outcomes) > 1:
            raise CannotCompile("a branch on a number that differs from prompt to prompt")
        return outcomes.pop()

    def __lt__(self, other: Any) -> bool:
        return self._decide(other, operator.lt)

    def __gt__(self, other: Any) -> bool:
        return self._decide(other, operator.gt)

    def __le__(self, other: Any) -> bool:
        return self._decide(other, operator.le)

    def __ge__(self, other: Any) -> bool:
        return self._decide(other, operator.ge)

    def __eq__(self, other: Any) -> bool:
        return other is not None and self._decide(other, operator.eq)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._convert())

    def __bool__(self) -> bool:
        return self != 0

    def _convert(self) -> Fraction:
        """Return the number; raise an error if it differs from prompt to prompt."""
        number = self.recorder.evaluate(self)
        if isinstance(number, Value):
            each = {float(entry) for entry in number.array.detach().reshape(-1)}
            if len(each) > 1:
                raise CannotCompile("a number that differs from prompt to prompt is converted")
            number = each.pop()
        return to_fraction(number)

    def __float__(self) -> float:
        try:
            return float(self._convert())
        except OverflowError:
            raise CannotCompile("a number of the program is too large for float64") from None

    def __int__(self) -> int:
        return int(self._convert())

    def __index__(self) -> int:
        number = self._convert()
        if number.denominator != 1:
            raise CannotCompile(f"the number {float(number):g} is not whole: declare it Count")
        return int(number)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._convert(), digits)

    def __floor__(self) -> int:
        return math.floor(self._convert())

    def __ceil__(self) -> int:
        return math.ceil(self._convert())

    def __trunc__(self) -> int:
        return math.trunc(self._convert())

    def __floordiv__(self, other: Any) -> Any:
        return self._convert() // other

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self._convert()

    def __mod__(self, other: Any) -> Any:
        return self._convert() % other

    def __rmod__(self, other: Any) -> Any:
        return other % self._convert()

    def __format__(self, form: str) -> str:
        return format(float(self), form)

    def __repr__(self) -> str:
        return f"the number {float(self):g}"


class RecordedMatrix:
    """A matrix of the program's numbers: `A @ v` for a vector v of a token, and `A.T`."""

    def __init__(self, recorder: Recorder, slot: Slot, shape: shapes.Shape) -> None:
        self._recorder, self._slot, self._shape = recorder, slot, shape

    def __matmul__(self, vector: Any) -> Recorded:
        return apply_matrix(self._slot, self._shape, vector)

    @property
    def T(self) -> RecordedMatrix:  # noqa: N802, as in NumPy
        slot = self._recorder.add("transpose_matrix", self._slot)
        return RecordedMatrix(self._recorder, slot, self._shape[::-1])


def apply_matrix(matrix: Any, shape: shapes.Shape, vector: Any) -> Recorded:
    """Multiply a constant matrix of this shape and a vector of a token."""
    if not is_value(vector):
        refuse_factor(vector)
    if len(vector.shape) != 1 or shape[1] != vector.shape[0]:
        raise CannotCompile(f"a {shape[0]}×{shape[1]} matrix times a value of shape {vector.shape}")
    return vector.recorder.make("apply_matrix", matrix, vector, shape=shape[:1])
