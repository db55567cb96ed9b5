"""A case: the sizes and the description of one instance on which a statement is tested.

    case = Case(d=2, L=3, n=10**6, A=matrix, note="a nilpotent part")
    trial.add(left, right, case)     # "$d = 2$, $L = 3$, $n = 10^6$, $A = [[1, 31.8], [0, 1]]$, …"

The numbers of a case, compared in the order of the arguments, decide which counterexample is the
smallest. Tensors and words only describe the instance.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from torch import Tensor


class Case:
    """Named sizes, matrices and words of one instance."""

    def __init__(self, *, note: str = "", **values: Any) -> None:
        self.values = values
        self.note = note

    @property
    def size(self) -> tuple[float, ...]:
        """The numbers of the case, which order it among other cases."""
        return tuple(float(v) for v in self.values.values() if isinstance(v, int | float))

    def extend(self, *, note: str = "", **values: Any) -> Case:
        """Make a case with further values, or with a further note."""
        notes = ", ".join(part for part in (self.note, note) if part)
        return Case(note=notes, **{**self.values, **values})

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __str__(self) -> str:
        words = [f"${name} = {format_entry(value)}$" for name, value in self.values.items()]
        return ", ".join([*words, *([self.note] if self.note else [])])


def format_entry(value: Any, digits: int = 7) -> str:
    """Format a number as a reader can type it (10^6, 5/3 or 0.25), and a matrix by rows."""
    if isinstance(value, Tensor):
        return format_entry(value.tolist(), digits)
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_entry(part, digits) for part in value)}]"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or abs(value) == math.inf:
        return str(value)
    if isinstance(value, int):
        power = round(math.log10(value)) if value >= 10**4 else 0
        return f"10^{power}" if power and value == 10**power else str(value)
    near = Fraction(value).limit_denominator(12)
    same = abs(near - Fraction(value)) <= abs(Fraction(value)) * Fraction(1, 10**14)
    if same and abs(value) < 1e5 and (near.denominator == 1 or 1000 % near.denominator):
        return str(near)  # an integer, or what has no short decimal, as 1/3
    return f"{value:.{digits}g}"
