"""Nodes of a trace: the computations of heads and hidden units, and the ranges that they
require.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from innerloop.language.conditions import Condition
from innerloop.language.errors import Line
from innerloop.language.forms import Entry, Pairs, Row, Term
from innerloop.language.knots import Knots
from innerloop.language.naming import Call, find_name


class Setting(NamedTuple):
    """The mask and the normalisation of attention."""

    mask: str
    normalisation: str


class Range(NamedTuple):
    """A range that forms of a token must stay in, and the line that requires it.

    knots      the knots of a function, if the range is that of its argument
    condition  a condition that replaces the range, for example that flags are 0 or 1
    """

    rows: list[Row]
    low: Fraction
    high: Fraction
    line: Line
    knots: Knots | None = None
    condition: Condition | None = None

    @property
    def error(self) -> float:
        """The largest measured distance between the straight lines and their function."""
        return 0.0 if self.knots is None else float(self.knots.errors.max())


class Part(NamedTuple):
    """Hidden units on every entry of `rows`, with slope, bias and weight of each in `net`.

    If they follow a function, they compute `factor` times the lines between its `knots`.
    """

    rows: list[Row]
    net: tuple[list[Fraction], ...]
    knots: Knots | None = None
    factor: Fraction = Fraction(1)

    def scale(self, factor: Fraction) -> Part:
        """Multiply the result of the units by a number."""
        slope, bias, weight = self.net
        net = slope, bias, [factor * c for c in weight]
        return self._replace(net=net, factor=factor * self.factor)


@dataclass(eq=False)
class Node:
    """A sum over tokens (kinds linear, relu, softmax) or a layer of hidden units (kind mlp).

    setting  mask and normalisation; None if any average over tokens is suitable
    gate     score terms that close a head to some tokens; it is open if they add up to 0
    reach    the largest |score| that a closed gate silences
    flagged  whether the gate is reach·(flag − 1) of a flag that must be 0 or 1
    parts    groups of hidden units; the node is their sum
    shared   whether the result is the same in every token
    block    the block that computes it, counted from 1
    calls    the positions in the program that compute it
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    line: Line
    label: str = ""
    setting: Setting | None = None
    terms: list[Term] = field(default_factory=list)
    gate: Pairs = field(default_factory=dict)
    reach: Fraction | None = None
    flagged: bool = False
    parts: list[Part] = field(default_factory=list)
    shared: bool = False
    block: int = 0
    calls: tuple[Call, ...] = ()

    @cached_property
    def author_name(self) -> str:
        """The register or variable that the author assigns it to, or else its line."""
        return self.label or find_name(self.calls) or f"line {self.line.number}"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def copy(self) -> Node:
        """Return a copy whose forms can be changed independently."""
        terms = [
            term._replace(score=dict(term.score), value=dict(term.value)) for term in self.terms
        ]
        parts = [part._replace(rows=[dict(row) for row in part.rows]) for part in self.parts]
        return replace(self, terms=terms, parts=parts, gate=dict(self.gate))

    @property
    def rows(self) -> list[Row]:
        """All forms that its hidden units read."""
        return [row for part in self.parts for row in part.rows]

    @property
    def attends(self) -> bool:
        return self.kind != "mlp"

    def list_entries(self) -> set[Entry]:
        """List the entries of registers and nodes that it reads."""
        if not self.attends:
            return {entry for row in self.rows for entry in row}
        pairs = {pair for term in self.terms for pair in term.score} | set(self.gate)
        values = {entry for term in self.terms for _, entry in term.value}
        return {entry for pair in pairs for entry in pair} | values

    def list_reads(self) -> set[str]:
        """List the registers and nodes that it reads."""
        return {entry[0] for entry in self.list_entries()}
