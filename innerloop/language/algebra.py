"""Exact linear algebra on sparse rational rows: ranks, and solutions of linear systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from innerloop.language.floats import find_size
from innerloop.language.forms import add_to, times

MAX_AMPLIFICATION = 100
"""The largest factor by which reducing the number of heads or units may enlarge the numbers
that are added up, and with them the rounding error.
"""
Sparse = dict[Any, Fraction]
Factors = tuple[Sparse, Sparse]


def reduce_rank(products: Sequence[Factors]) -> list[Factors]:
    """Return the same sum Σ left ⊗ right with the smallest possible number of terms.

    The right factors are made linearly independent first, then the left factors.
    """
    swapped = [(right, left) for left, right in _make_rights_independent(products)]
    return [(left, right) for right, left in _make_rights_independent(swapped)]


def reduce_stably(products: Sequence[Factors], written: int) -> list[Factors]:
    """Return the sum with fewer terms, unless the terms would then cancel each other.

    Exact algebra does not notice a cancellation, but floating point loses precision in it. Both
    orders of the terms are tried. `written` is the index (0 or 1) of the factor whose entries are
    written; the other factor is read.
    """
    few = reduce_rank(products)
    if len(few) == len(products):  # nothing was combined
        return few
    limits = {key: MAX_AMPLIFICATION * size for key, size in _add_sizes(products, written).items()}
    if _is_within(few, limits, written):
        return few
    few = reduce_rank(products[::-1])
    return few if _is_within(few, limits, written) else list(products)


def _is_within(products: Sequence[Factors], limits: dict[Any, float], written: int) -> bool:
    """Return whether the size of what is added to every written place is within its limit."""
    return all(size <= limits[key] for key, size in _add_sizes(products, written).items())


def _add_sizes(products: Sequence[Factors], written: int) -> dict[Any, float]:
    """Return, for every place that is written, the sum of the sizes of the terms added to it."""
    sizes: dict[Any, float] = defaultdict(float)
    for factors in products:
        read = max(find_size(c) for c in factors[1 - written].values())
        for key, c in factors[written].items():
            sizes[key] += find_size(c) * read
    return sizes


def _make_rights_independent(products: Sequence[Factors]) -> list[Factors]:
    """Return the same sum with linearly independent right factors, a subset of the original
    ones.
    """
    independent: list[Factors] = []
    echelon: dict[Any, tuple[Sparse, Sparse]] = {}  # pivot → reduced row, and it in kept rights
    for number, (left, right) in enumerate(products, 1):
        row, combination = dict(right), dict[int, Fraction]()
        _eliminate(row, combination, echelon, 1)
        if row and number == len(products):
            independent.append((dict(left), right))
        elif row:
            pivot = next(iter(row))
            factor = 1 / row[pivot]
            made = {index: times(-c, factor) for index, c in combination.items()}
            made[len(independent)] = factor
            echelon[pivot] = {key: times(c, factor) for key, c in row.items()}, made
            independent.append((dict(left), right))
        else:
            for index, c in combination.items():
                for key, weight in left.items():
                    add_to(independent[index][0], key, times(c, weight))
    return [(left, right) for left, right in independent if left]


def solve(equations: Iterable[tuple[Sparse, Sparse]]) -> dict[Any, Sparse] | None:
    """Solve Σ_i P[i] X[i] = Q for rows X[i], with one equation per pair (P, Q).

    Free unknowns are set to 0. Return the rows that are not 0, or None if there is no solution.
    """
    echelon: dict[Any, tuple[Sparse, Sparse]] = {}
    for p, q in equations:
        row, right = dict(p), dict(q)
        _eliminate(row, right, echelon, -1)
        if not row:
            if right:
                return None
            continue
        pivot = next(iter(row))
        factor = 1 / row[pivot]
        echelon[pivot] = (
            {key: times(c, factor) for key, c in row.items()},
            {key: times(c, factor) for key, c in right.items()},
        )
    solution: dict[Any, Sparse] = {}
    for pivot, (row, right) in reversed(echelon.items()):
        values = dict(right)
        for key, c in row.items():
            if key != pivot:
                for column, weight in solution.get(key, {}).items():
                    add_to(values, column, times(-c, weight))
        solution[pivot] = values
    return {key: row for key, row in solution.items() if row}


def _eliminate(
    row: Sparse, record: Sparse, echelon: dict[Any, tuple[Sparse, Sparse]], sign: int
) -> None:
    """Subtract multiples of the earlier rows from `row`, in their order, until their pivots are 0.

    `record` receives `sign` times the same multiples of the combinations that the earlier rows are.
    """
    for pivot, (reduced, made) in echelon.items():
        if c := row.get(pivot):
            for key, weight in reduced.items():
                add_to(row, key, times(-c, weight))
            for key, weight in made.items():
                add_to(record, key, times(sign * c, weight))
