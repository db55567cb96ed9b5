"""Operations of Python on values of a token that no transformer computes, and their alternatives.

Recorded values raise an error for all of them. Numbers of the program may be compared and
converted.
"""

from __future__ import annotations

import numbers
import operator
from typing import Any, ClassVar, NoReturn

import numpy as np
from torch import Tensor

from innerloop.language.errors import CannotCompile

BRANCH = "a branch on a value: weights cannot branch. Use gate(flag, x, bound) or relu"
COMPARISON = (
    "a comparison of values, which differ from token to token: weights cannot branch. Use "
    "gate(flag, x, bound), relu, or where= in a sum"
)
PYTHON_NUMBER = (
    "a value of a token is used as a Python number: it is none. Functions of values are "
    "piecewise(x, f, knots), relu and clip"
)
ROUNDING = "weights cannot round: a staircase is piecewise(x, f, knots), up to its steep parts"
PRODUCTS = (
    "values are multiplied by dot(a, b), matvec(M, v), outer(a, b), or * entry by entry; "
    "A @ v is for a matrix A of numbers (Matrices), and A.T @ v is v @ A"
)
TEXT = "a value of a token has no digits while a program is compiled: print it without a format"
ENTRIES = "an entry of a value cannot be assigned: assign the register, with stack([…]) of entries"
FLAGS = "values have no bits: flags are 0 or 1, `a * b` is and, `1 - a` is not"
OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "matmul": operator.matmul,
}
"""The functions of NumPy that its scalars call for an operator."""
COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
TORCH_OPERATORS = ("add", "sub", "rsub", "mul", "div", "true_divide", "__rpow__", "matmul")
"""The functions of torch that tensors call for an operator."""


class Refusing:
    """Raises an error for unsupported operations, with the line and the language's alternative."""

    shape: tuple[int, ...]
    compares: ClassVar[bool] = False
    """Whether Python may compare it: true for numbers of a program, false for values of a token."""

    def __bool__(self) -> bool:
        raise CannotCompile(BRANCH)

    def _compare(self, other: Any) -> bool:
        raise CannotCompile(COMPARISON)

    __lt__ = __gt__ = __le__ = __ge__ = _compare
    __eq__ = __ne__ = __contains__ = _compare  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:
        raise CannotCompile(f"a value of a token is used as a key: that is {COMPARISON}")

    def _refuse_number(self) -> NoReturn:
        raise CannotCompile(PYTHON_NUMBER)

    __float__ = __int__ = __index__ = __complex__ = _refuse_number

    def _refuse_rounding(self, *others: Any) -> NoReturn:
        raise CannotCompile(ROUNDING)

    __round__ = __floor__ = __ceil__ = __trunc__ = _refuse_rounding
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse_rounding
    __divmod__ = __rdivmod__ = _refuse_rounding

    def _refuse_product(self, other: Any) -> NoReturn:
        raise CannotCompile(f"@ of values: {PRODUCTS}")

    __matmul__ = __rmatmul__ = _refuse_product

    def _refuse_bits(self, *others: Any) -> NoReturn:
        raise CannotCompile(FLAGS)

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _refuse_bits

    def __rpow__(self, base: Any) -> Any:
        raise CannotCompile("a value as an exponent: use piecewise(x, f, knots), or softmax")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise CannotCompile(ENTRIES)

    def __format__(self, form: str) -> str:
        if form:
            raise CannotCompile(TEXT)
        return repr(self)

    def __repr__(self) -> str:
        return f"a value of a token, of shape {self.shape}"

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise CannotCompile("a value of a token is called like a function: it is none")

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise CannotCompile(PYTHON_NUMBER)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Treat scalars of NumPy as numbers; raise an error for NumPy's functions."""
        known = {**OPERATORS, **COMPARISONS}.get(function.__name__)
        if function.__name__ in COMPARISONS and not self.compares:
            raise CannotCompile(COMPARISON)
        if known is None or method != "__call__" or len(inputs) != 2:
            _refuse_function("numpy", function.__name__)
        if any(isinstance(each, np.ndarray) and each.ndim for each in inputs):
            raise CannotCompile(f"an array of NumPy and a value of a token: {PRODUCTS}")
        scalar = (np.generic, np.ndarray)
        return known(*(each.item() if isinstance(each, scalar) else each for each in inputs))

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        """Treat tensors of one number as numbers; raise an error for functions of torch."""
        name = getattr(function, "__name__", str(function))
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            if not cls.compares:
                raise CannotCompile(COMPARISON)
            return NotImplemented
        if name not in TORCH_OPERATORS or not any(isinstance(a, Tensor) for a in arguments):
            _refuse_function("torch", name)
        return NotImplemented


def _refuse_function(library: str, name: str) -> NoReturn:
    known = {"relu": "relu(x)", "maximum": "relu(x)", "abs": "abs(x)", "absolute": "abs(x)"}
    known |= {"dot": "dot(a, b)", "matmul": "dot, matvec", "clip": "clip(x, bound)"}
    known |= {"outer": "outer(a, b)", "stack": "stack(rows)", "sum": "entry_sum(x)"}
    instead = known.get(name, "piecewise(x, f, knots), which follows any function on knots")
    raise CannotCompile(f"{library}.{name} of a value of a token: use the language's {instead}")


def refuse_factor(factor: Any) -> NoReturn:
    raise CannotCompile(f"a matrix times {describe_kind(factor)}: {PRODUCTS}")


def describe_kind(value: Any) -> str:
    """Describe the kind of a value for an error message, in the terms of the language."""
    if isinstance(value, Refusing):
        return repr(value) if value.compares else f"a value of shape {value.shape}"
    if isinstance(value, numbers.Number):
        return f"the number {value}"
    if value is None:
        return "nothing"
    return f"a {type(value).__name__}"
