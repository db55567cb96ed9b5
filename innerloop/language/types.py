"""Declarations of a program: registers that tokens hold, and numbers that a user sets.

    @program(x=Data("d"), y=Data(), w=State("d", shared=True), eta=Number(0.1, "step size"))

Dimensions are letters (`d`, `n`, `K`, the sizes of the prompt) or integers. A register without
dimensions is a scalar.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from innerloop.language.errors import CannotCompile

RESERVED = ("one", "scratch", "answer", "k", "own")
"""Names that no register may have: registers of the compiler, and arguments of a step."""
OPTIONS = ("instances", "seed", "dtype", "device", "progress", "points")
"""Names that no number may have: options of `build`, `compile` and `exact`."""


@dataclass(frozen=True)
class Register:
    """A register of every token. `shared`: the same in every token, which the compiler proves."""

    dims: tuple[str | int, ...]
    state: bool
    shared: bool

    def find_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape for given sizes."""
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims)


def Data(*dims: str | int, shared: bool = False) -> Register:  # noqa: N802, it reads as a type
    """Declare a register that the prompt fills and no step changes.

    Args:
        *dims: Its shape, as names of sizes ("d") or numbers; none for a scalar.
        shared: Whether it is the same in every token.
    """
    return Register(_check_dims(dims), state=False, shared=shared)


def State(*dims: str | int, shared: bool = False) -> Register:  # noqa: N802
    """Declare a register that steps change; it starts as the prompt has it, or from 0.

    Args:
        *dims: Its shape, as names of sizes ("d") or numbers; none for a scalar.
        shared: Whether it is the same in every token; the compiler proves it.
    """
    return Register(_check_dims(dims), state=True, shared=shared)


def _check_dims(dims: tuple[Any, ...]) -> tuple[str | int, ...]:
    """Raise an error for dimensions that are neither names of sizes nor integers."""
    for dim in dims:
        is_name = isinstance(dim, str) and dim.isidentifier()
        if not is_name and (not isinstance(dim, int) or isinstance(dim, bool) or dim < 1):
            raise CannotCompile(
                f"a dimension of a register is the name of a size, such as 'd', or a whole number "
                f"from 1, got {dim!r:.40}"
            )
    return dims


@dataclass(frozen=True)
class Number:
    """A number that a user may set, also one per step; `identify` may fit it if it is `free`."""

    default: float | None = None
    help: str = "a number of the program"
    least: float | None = None
    most: float | None = None
    free: bool = True


def Bound(  # noqa: N802
    default: float, help: str = "a range", least: float = 1e-6, most: float = 1e12
) -> Number:
    """Declare a limit on a value; it is checked when a prompt is run, and never fitted.

    Args:
        default: The bound unless set.
        help: What is bounded.
        least: The smallest bound that may be set.
        most: The largest bound that may be set.
    """
    return Number(default, help, least, most, free=False)


@dataclass(frozen=True)
class Count:
    """An integer that a user may set."""

    default: int
    help: str = "a whole number of the program"
    least: int = 1
    most: int = 100_000


@dataclass(frozen=True)
class Matrices:
    """A d×d matrix, or one per step: explicit, `random` near scale·I, or `identity` times scale."""

    help: str = "d×d, steps×d×d, random or identity"
    scale: float = 0.1
    seed: int = 1


Declaration = Register | Number | Count | Matrices


def to_fraction(value: Any) -> Fraction:
    """Convert a number to the rational that its decimal digits represent: 0.1 is one tenth."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, str | complex) or not hasattr(value, "__float__"):
        raise CannotCompile(
            f"{value!r:.60} is not a number: a program adds and multiplies values of tokens and "
            "real numbers"
        )
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor or an array of several numbers
        raise CannotCompile(
            f"a {type(value).__name__} of several numbers: weights are single numbers; declare a "
            "matrix as Matrices(), and write A @ v"
        ) from None
    if not math.isfinite(number):
        raise CannotCompile(f"the number {number}, which no weight can be")
    return Fraction(repr(number))


def to_fractions(values: Sequence[Any]) -> list[Fraction]:
    """Convert numbers to the rationals that their decimal digits represent."""
    if all(type(value) is float and math.isfinite(value) for value in values):
        return list(_read_floats(tuple(values)))
    return [to_fraction(value) for value in values]


@functools.lru_cache(maxsize=16)
def _read_floats(values: tuple[float, ...]) -> tuple[Fraction, ...]:
    """Convert floats to rationals.

    The last few lists are cached, because steps share their knots.
    """
    return tuple(Fraction(repr(value)) for value in values)
