"""Symbols of the trace: sparse forms with rational coefficients in the entries of tokens.

    Form     affine in the registers of one token, `me` or `j`: Q, K, V and MLPs read it for free
    Score    bilinear in me and j: Σ c · (entry of me) · (entry of j)
    Summand  Σ act(score) · value, the value linear in j: one head computes each term

An entry is (register, place); ("one", 0) is the constant 1. Symbols are multiplied in products.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from innerloop.language.errors import CannotCompile
from innerloop.language.types import to_fraction, to_fractions

Entry = tuple[str, int]
Row = dict[Entry, Fraction]
Pairs = dict[tuple[Entry, Entry], Fraction]
ONE: Entry = ("one", 0)
TWO_TOKENS = (
    "a value that depends on two tokens: a head multiplies numbers of me and j, so do this to the "
    "registers first"
)


def add_to(target: dict[Any, Fraction], key: Any, amount: Fraction) -> None:
    """Add a number to an entry of a sparse form, and remove the entry if it becomes 0."""
    old = target.get(key)
    new = amount if old is None else old + amount
    if new:
        target[key] = new
    else:
        target.pop(key, None)


def times(a: Fraction, b: Fraction) -> Fraction:
    """Return a product; factors of 1, which are most frequent, skip the slow rational
    arithmetic.
    """
    if a == 1:
        return b
    if b == 1:
        return a
    return -b if a == -1 else -a if b == -1 else a * b


def scale_row(row: dict[Any, Fraction], factor: Fraction) -> dict[Any, Fraction]:
    """Multiply a sparse form by a number."""
    if factor == -1:
        return {key: -c for key, c in row.items()}
    return {key: times(factor, c) for key, c in row.items()} if factor else {}


def add_rows(*rows: dict[Any, Fraction]) -> dict[Any, Fraction]:
    """Return the sum of sparse forms."""
    result = dict(rows[0])
    for row in rows[1:]:
        for key, c in row.items():
            add_to(result, key, c)
    return result


class Symbol:
    """The arithmetic that all symbols have in common; shapes were compared when it was recorded."""

    shape: tuple[int, ...]

    def __add__(self, other: Any) -> Symbol:
        raise NotImplementedError

    def scale(self, factor: Fraction) -> Symbol:
        """Multiply by a number."""
        raise NotImplementedError

    def rectify(self) -> Symbol:
        """Return max(x, 0) for every entry."""
        raise NotImplementedError

    def contract(self, other: Any, operation: str) -> Symbol:
        """Multiply by `dot`, `outer`, `matvec`, or `times`, which multiplies entry by entry."""
        from innerloop.language.products import multiply

        return multiply(self, other, operation)

    def __mul__(self, other: Any) -> Symbol:
        if isinstance(other, Symbol):
            return self.contract(other, "times")
        return self.scale(to_fraction(other))

    def __radd__(self, other: Any) -> Symbol:
        return self + other

    def __rmul__(self, other: Any) -> Symbol:
        return self * other

    def __neg__(self) -> Symbol:
        return self * -1

    def __sub__(self, other: Any) -> Symbol:
        return self + (-other if isinstance(other, Symbol) else -to_fraction(other))

    def __rsub__(self, other: Any) -> Symbol:
        return -self + other

    def __truediv__(self, other: Any) -> Symbol:
        return self * (1 / to_fraction(other))

    def __abs__(self) -> Symbol:
        return self.rectify() + (-self).rectify()

    def __getitem__(self, index: int) -> Symbol:
        raise CannotCompile(f"an entry of {TWO_TOKENS}")

    def transpose(self) -> Symbol:
        """Exchange rows and columns."""
        raise CannotCompile(f"the transpose of {TWO_TOKENS}")

    def sum_entries(self) -> Symbol:
        """Return the sum of the entries of a vector."""
        raise CannotCompile(f"the sum of entries of {TWO_TOKENS}")

    def stack(self, rows: Sequence[Any]) -> Symbol:
        """Stack values of the same shape along a new first dimension."""
        raise CannotCompile(f"a stack of {TWO_TOKENS}")

    def apply_matrix(self, matrix: Sequence[Sequence[Fraction]]) -> Symbol:
        """Multiply by a constant matrix."""
        raise CannotCompile(f"a matrix times {TWO_TOKENS}")

    def sum_hinges(
        self, slope: Sequence[Any], bias: Sequence[Any], weight: Sequence[Any]
    ) -> Symbol:
        """Return Σ_k weight_k relu(slope_k x + bias_k) for every entry x."""
        hinged = [(self * s + b).rectify() * w for s, b, w in zip(slope, bias, weight, strict=True)]
        result = hinged[0]
        for each in hinged[1:]:
            result = result + each
        return result


class Form(Symbol):
    """Affine forms of the entries of one token, one row per result; `side` is "me" or "j"."""

    def __init__(self, shape: tuple[int, ...], rows: list[Row], side: str) -> None:
        self.shape = shape
        self.rows = rows
        self.side = side

    def __add__(self, other: Any) -> Symbol:
        if not isinstance(other, Symbol):
            number = to_fraction(other)
            other = Form((), [{ONE: number} if number else {}], self.side)
        if not isinstance(other, Form) or other.side != self.side:
            return as_pair(self) + other
        shape = self.shape or other.shape
        return Form(shape, add_all(self, other, shape), self.side)

    def scale(self, factor: Fraction) -> Form:
        return Form(self.shape, [scale_row(row, factor) for row in self.rows], self.side)

    def __getitem__(self, index: int) -> Form:
        size = math.prod(self.shape[1:])
        return Form(self.shape[1:], self.rows[index * size : (index + 1) * size], self.side)

    def apply_matrix(self, matrix: Sequence[Sequence[Fraction]]) -> Form:
        product: list[Row] = [{} for _ in matrix]
        for made, weights in zip(product, matrix, strict=True):
            for weight, row in zip(weights, self.rows, strict=True):
                for entry, c in row.items() if weight else ():
                    add_to(made, entry, times(weight, c))
        return Form((len(matrix),), product, self.side)

    def transpose(self) -> Form:
        k, d = self.shape
        rows = [self.rows[i * d + j] for j in range(d) for i in range(k)]
        return Form((d, k), rows, self.side)

    def sum_entries(self) -> Form:
        return Form((), [add_rows({}, *self.rows)], self.side)

    def stack(self, rows: Sequence[Any]) -> Form:
        if any(not isinstance(row, Form) or row.side != self.side for row in rows):
            raise CannotCompile("stacking values of different tokens: stack registers before a sum")
        return Form((len(rows), *self.shape), [r for row in rows for r in row.rows], self.side)

    def rectify(self) -> Symbol:
        return self.sum_hinges([1], [0], [1])

    def sum_hinges(
        self, slope: Sequence[Any], bias: Sequence[Any], weight: Sequence[Any]
    ) -> Symbol:
        if self.side == "j":
            pair = as_pair(self)
            return pair.rectify() if len(slope) == 1 else pair.sum_hinges(slope, bias, weight)
        from innerloop.language.machine import get_machine

        net = tuple(to_fractions(part) for part in (slope, bias, weight))
        return get_machine().add_units(self, net)


class Score(Symbol):
    """Bilinear forms in me and j, as rows of {(entry of me, entry of j): coefficient}."""

    def __init__(self, shape: tuple[int, ...], rows: list[Pairs]) -> None:
        self.shape = shape
        self.rows = rows

    def __add__(self, other: Any) -> Symbol:
        other = as_pair(other)
        if isinstance(other, Summand):
            return other + self
        shape = self.shape or other.shape
        return Score(shape, add_all(self, other, shape))

    def scale(self, factor: Fraction) -> Score:
        return Score(self.shape, [scale_row(row, factor) for row in self.rows])

    def rectify(self) -> Summand:
        terms = [Term(row, True, {(t, ONE): Fraction(1)}) for t, row in enumerate(self.rows)]
        return Summand(self.shape, terms)

    def depends_on(self, side: str) -> bool:
        """Return whether it depends on the entries of this side, `me` or `j`."""
        which = 0 if side == "me" else 1
        return any(pair[which] != ONE for row in self.rows for pair in row)

    def as_form(self, side: str) -> Form:
        """Return a score that depends on one token only as a form."""
        which = 0 if side == "me" else 1
        return Form(self.shape, [{p[which]: c for p, c in r.items()} for r in self.rows], side)


class Term(NamedTuple):
    """One act(score) · value; the value is {(entry of the result, entry of j): coefficient}."""

    score: Pairs
    active: bool
    value: dict[tuple[int, Entry], Fraction]


class Summand(Symbol):
    """A sum of terms, to be summed over j."""

    def __init__(self, shape: tuple[int, ...], terms: list[Term]) -> None:
        self.shape = shape
        self.terms = terms

    def __add__(self, other: Any) -> Symbol:
        other = as_summand(as_pair(other))
        if other.shape != self.shape:
            raise CannotCompile(f"a sum of shapes {self.shape} and {other.shape} inside of a sum")
        return Summand(self.shape, self.terms + other.terms)

    def scale(self, factor: Fraction) -> Summand:
        return Summand(
            self.shape, [t._replace(value=scale_row(t.value, factor)) for t in self.terms]
        )

    def rectify(self) -> Symbol:
        raise CannotCompile(
            "relu of score · value: the activation of a head acts on its score alone. Write "
            "relu(score) * value, or store the product in a register first"
        )


def add_all(a: Any, b: Any, shape: tuple[int, ...]) -> list[Any]:
    """Add two symbols row by row; the row of a scalar is added to every row of the other."""
    count = math.prod(shape)
    first, second = (x.rows if x.shape else x.rows * count for x in (a, b))
    return [add_rows(p, q) for p, q in zip(first, second, strict=True)]


def as_pair(value: Any) -> Any:
    """Return a number or a form as a score; return scores and summands unchanged."""
    if not isinstance(value, Symbol):
        number = to_fraction(value)
        return Score((), [{(ONE, ONE): number} if number else {}])
    if not isinstance(value, Form):
        return value
    mine = value.side == "me"
    rows = [{(e, ONE) if mine else (ONE, e): c for e, c in row.items()} for row in value.rows]
    return Score(value.shape, rows)


def as_summand(score: Any) -> Summand:
    """Return a score as a summand; its entries become values if possible, and scores otherwise."""
    if isinstance(score, Summand):
        return score
    if not score.depends_on("me"):
        value = {(t, k): c for t, row in enumerate(score.rows) for (_, k), c in row.items()}
        return Summand(score.shape, [Term({(ONE, ONE): Fraction(1)}, False, value)])
    terms = [Term(row, False, {(t, ONE): Fraction(1)}) for t, row in enumerate(score.rows) if row]
    return Summand(score.shape, terms)
