"""Functions that compare rational numbers with the range and precision of float64."""

from __future__ import annotations

import math
from fractions import Fraction

SMALLEST = 2.0**-1022
"""The smallest normal float64. Smaller numbers have fewer digits."""
PRECISION = Fraction(1, 1 << 53)
"""The largest relative error of rounding to a normal float64."""


def is_representable(number: Fraction) -> bool:
    """Return whether float64 represents a number with its usual relative precision.

    Subnormal floats do so only if no digits are lost.
    """
    try:
        rounded = float(number)
    except OverflowError:
        return False
    if abs(rounded) >= SMALLEST or not number:
        return True
    return abs(Fraction(rounded) - number) <= abs(number) * PRECISION


def find_size(number: Fraction) -> float:
    """Return |number| as a float, or infinity if it is too large for a float."""
    try:
        return abs(float(number))
    except OverflowError:
        return math.inf


def describe_size(number: Fraction) -> str:
    """Describe the size of a number that float64 cannot represent, and the limit of float64."""
    size = math.log10(abs(number.numerator)) - math.log10(number.denominator)
    limit = "at most 1.8e308" if size > 0 else "at least 2.2e-308, or of fewer digits"
    return f"a number of about 1e{round(size)}, which float64 cannot hold: it is {limit}"
