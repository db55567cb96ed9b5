"""What float64 can hold of a rational number."""

from __future__ import annotations

import math
from fractions import Fraction

SMALLEST = 2.0**-1022
"""Floats below this are subnormal: they have fewer digits the smaller they are."""
PRECISION = Fraction(1, 1 << 53)
"""The relative error that rounding to a normal float64 makes at most."""


def is_representable(number: Fraction) -> bool:
    """Whether a float64 is within its usual relative precision of a number.

    Subnormal floats are so only where they lose no digits.
    """
    try:
        rounded = float(number)
    except OverflowError:
        return False
    if abs(rounded) >= SMALLEST or not number:
        return True
    return abs(Fraction(rounded) - number) <= abs(number) * PRECISION


def find_size(number: Fraction) -> float:
    """Return |number| as a float; infinite where it is too large for one."""
    try:
        return abs(float(number))
    except OverflowError:
        return math.inf


def describe_size(number: Fraction) -> str:
    """Describe the size of a number that float64 cannot hold, and the limit of float64."""
    size = math.log10(abs(number.numerator)) - math.log10(number.denominator)
    limit = "at most 1.8e308" if size > 0 else "at least 2.2e-308, or of fewer digits"
    return f"a number of about 1e{round(size)}, which float64 cannot hold: it is {limit}"
