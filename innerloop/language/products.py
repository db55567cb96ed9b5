"""Products of symbols: one factor becomes the score of a head, the other its value.

A head multiplies a score, bilinear in me and j, by a value, linear in j. A product may therefore
have degree 1 in me and degree 2 in j. A product of higher degree raises an error that says what to
write instead.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any, NamedTuple

from innerloop.language.errors import CannotCompile
from innerloop.language.forms import (
    ONE,
    Form,
    Score,
    Summand,
    Symbol,
    Term,
    add_to,
    as_pair,
    times,
)
from innerloop.language.machine import get_machine


class Cell(NamedTuple):
    """One product of entries, x[left]·y[right], which is added to entry `out` of the result."""

    out: int
    left: int
    right: int

    def swap(self) -> Cell:
        return Cell(self.out, self.right, self.left)


def list_cells(
    operation: str, a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], list[Cell]]:
    """Return the shape of a product, and the products of entries whose sums are its entries."""
    if operation == "times":
        shape = a or b
        return shape, [Cell(t, t if a else 0, t if b else 0) for t in range(math.prod(shape))]
    if operation == "dot":
        return (), [Cell(0, i, i) for i in range(a[0])]
    if operation == "outer":
        return a + b, [Cell(i * b[0] + k, i, k) for i in range(a[0]) for k in range(b[0])]
    return a[:1], [Cell(r, r * a[1] + k, k) for r in range(a[0]) for k in range(a[1])]


def multiply(x: Symbol, y: Symbol, operation: str) -> Symbol:
    """Return the product of two symbols."""
    shape, cells = list_cells(operation, x.shape, y.shape)
    x, y = _simplify(x), _simplify(y)
    if _is_form(x, "me") and _is_form(y, "me"):
        return get_machine().multiply_inside(x, y, operation)
    if _rank(x) < _rank(y):
        x, y, cells = y, x, [cell.swap() for cell in cells]
    if isinstance(x, Form) and isinstance(y, Form):
        return _multiply_forms(x, y, shape, cells)
    if isinstance(x, Score) and isinstance(y, Form):
        return _multiply_score(x, y, shape, cells) if y.side == "j" else _refuse_degree(y)
    if isinstance(x, Summand) and isinstance(y, Form):
        return Summand(shape, [_multiply_term(term, y, cells) for term in x.terms])
    raise CannotCompile(
        "a product of two scores: a head multiplies one score, bilinear in me and j, by a value, "
        "linear in j. Put one factor into a register first, on a line before: me.p = …; then write "
        "me.p or j.p here"
    )


def _simplify(x: Symbol) -> Any:
    """Return a score that depends on one token only as a form of that token."""
    if isinstance(x, Score):
        if not x.depends_on("me"):
            return x.as_form("j")
        if not x.depends_on("j"):
            return x.as_form("me")
    return x


def _is_form(x: Any, side: str) -> bool:
    return isinstance(x, Form) and x.side == side


def _rank(x: Any) -> int:
    """Return the position of a factor in the order of factors: those of the score come first."""
    if isinstance(x, Form):
        return 1 if x.side == "me" else 0
    return 2 if isinstance(x, Score) else 3


def _multiply_forms(x: Form, y: Form, shape: tuple[int, ...], cells: list[Cell]) -> Symbol:
    """Multiply two forms, the second of which reads j."""
    if x.side == "j":
        # The factor with fewer entries becomes the score: fewer heads.
        if len({c.left for c in cells}) > len({c.right for c in cells}):
            x, y, cells = y, x, [cell.swap() for cell in cells]
        return _multiply_score(as_pair(x), y, shape, cells)
    if x.shape == () and y.shape != ():
        score = {(q, ONE): c for q, c in x.rows[0].items()}
        value = {(t, k): c for t, row in enumerate(y.rows) for k, c in row.items()}
        return Summand(shape, [Term(score, False, value)])
    rows: list[Any] = [{} for _ in range(math.prod(shape))]
    for cell in cells:
        for q, c in x.rows[cell.left].items():
            for k, e in y.rows[cell.right].items():
                add_to(rows[cell.out], (q, k), times(c, e))
    return Score(shape, rows)


def _multiply_score(x: Score, y: Form, shape: tuple[int, ...], cells: list[Cell]) -> Summand:
    """Multiply a score by a value of j; each entry of the score becomes one term."""
    values: dict[int, Any] = defaultdict(dict)
    for cell in cells:
        for k, c in y.rows[cell.right].items():
            add_to(values[cell.left], (cell.out, k), c)
    terms = [Term(x.rows[a], False, value) for a, value in values.items() if x.rows[a]]
    return Summand(shape, terms)


def _multiply_term(term: Term, y: Form, cells: list[Cell]) -> Term:
    """Multiply a term by a form, if the term has fewer factors than a head can multiply."""
    if y.side == "j" and all(entry == ONE for _, entry in term.value):
        value: dict[Any, Fraction] = {}
        for (left, _), c in term.value.items():
            for cell in (each for each in cells if each.left == left):
                for k, e in y.rows[cell.right].items():
                    add_to(value, (cell.out, k), times(c, e))
        return term._replace(value=value)
    side = 1 if y.side == "j" else 0
    if y.shape == () and not term.active and all(pair[side] == ONE for pair in term.score):
        score: dict[Any, Fraction] = {}
        for (q, k), c in term.score.items():
            for entry, e in y.rows[0].items():
                add_to(score, (q, entry) if y.side == "j" else (entry, k), times(c, e))
        return term._replace(score=score)
    return _refuse_degree(y)


def _refuse_degree(y: Form) -> Any:
    if y.side == "j":
        raise CannotCompile(
            "a summand of degree 3 in j: a head is a score, bilinear in me and j, times a value, "
            "linear in j. Put a product of j's registers into a register first, on a line before: "
            "me.p = …; then write j.p here"
        )
    raise CannotCompile(
        "a summand of degree 2 in me: a head is a score, bilinear in me and j, times a value, "
        "linear in j. Take the factor of me out of the sum, or put the product into a register "
        "first, on a line before: me.p = …; then write me.p here"
    )
