"""Proofs that a ReLU has one side only, from the prompt's constants, squares and declared ranges.

A comparison at points observes some units from one side only. For many units, the other side is
impossible: a mean square that is cleared by relu(x) − relu(−x) never needs the second unit. Here
the blocks are run on intervals, token by token, in rational arithmetic:

    prompt    an entry that does not depend on the draw is a constant, any other is unbounded
    squares   x·x is at least 0, also for this token and another if x is the same in all of them
    ranges    knots and gates hold within their ranges only, heads with a gate within its reach

A sign that follows is valid for every prompt and state of these sizes, in range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from innerloop.language.forms import Entry, Row, add_to, scale_row
from innerloop.language.nodes import Range
from innerloop.language.plan import Plan, PlannedBlock
from innerloop.language.rational import count_keys
from innerloop.transformer import Layout

ZERO: Any = Fraction(0)


class Interval(NamedTuple):
    """Arrays of lower and upper ends: rationals, or infinite floats."""

    low: Any
    high: Any

    def __add__(self, other: Any) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Any) -> Interval:
        ends = [_multiply(a, b) for a in self for b in other]
        return Interval(_reduce(np.minimum, ends), _reduce(np.maximum, ends))

    def scale(self, factor: Fraction) -> Interval:
        """Multiply by a number."""
        ends = _multiply(self.low, factor), _multiply(self.high, factor)
        return Interval(*(ends if factor >= 0 else ends[::-1]))

    def square(self) -> Interval:
        """Return the interval of x·x, where both factors are the same x."""
        ends = [_multiply(self.low, self.low), _multiply(self.high, self.high)]
        inside = (self.low <= 0) & (self.high >= 0)
        return Interval(np.where(inside, ZERO, np.minimum(*ends)), np.maximum(*ends))

    def rectify(self) -> Interval:
        """Return the interval of max(x, 0)."""
        return Interval(np.maximum(self.low, ZERO), np.maximum(self.high, ZERO))

    def where(self, mask: Any, other: Interval) -> Interval:
        """Return these ends at the places in the mask, and those of the other interval
        elsewhere.
        """
        return Interval(*(np.where(mask, a, b) for a, b in zip(self, other, strict=True)))


def _multiply(a: Any, b: Any) -> Any:
    """Multiply ends; 0 times infinity is 0, because ends are limits of numbers."""
    with np.errstate(invalid="ignore"):
        product = a * b
    return np.where(product == product, product, ZERO)  # noqa: PLR0124, NaN is not itself


def _reduce(choose: Any, ends: list[Any]) -> Any:
    result = ends[0]
    for each in ends[1:]:
        result = choose(result, each)
    return result


class SignProver:
    """Runs a plan on intervals; `signed` are the ReLUs that have one side only."""

    def __init__(self, plan: Plan, layout: Layout, context: int) -> None:
        self.plan, self.layout, self.context = plan, layout, context
        self.signed: set[Any] = set()

    def run(self, drawn: list[Any], shared: set[int]) -> set[Any]:
        """Prove signs for all streams like those drawn; `shared` places are equal in all tokens."""
        first = drawn[0]
        fixed = np.all([stream == first for stream in drawn], axis=0)
        ends = np.full(first.shape, -math.inf, dtype=object), np.full_like(first, math.inf)
        self.held = Interval(first, first).where(fixed, Interval(*ends))
        constant = (first == first[:1]).all(0) & fixed.all(0)
        self.same = {*shared, *np.flatnonzero(constant).tolist()}
        for number, block in enumerate(self.plan.blocks):
            self._attend(number, block)
            self._apply_units(number, block)
        return self.signed

    def _find(self, entry: Entry) -> int:
        if entry in self.plan.places:
            entry = self.plan.places[entry]
        return self.layout[entry[0]].places[entry[1]]

    def _read(self, entry: Entry, side: str = "token") -> Interval:
        """Return the interval of an entry: of each token, or of `me` or `j` for pairs of tokens."""
        place = self._find(entry)
        axis = {"token": slice(None), "me": (slice(None), None), "j": (None, slice(None))}[side]
        return Interval(self.held.low[:, place][axis], self.held.high[:, place][axis])

    def _note(self, key: Any, numbers: Interval) -> None:
        if (numbers.low >= 0).all() or (numbers.high <= 0).all():
            self.signed.add(key)

    def _attend(self, number: int, block: PlannedBlock) -> None:
        if not block.heads:
            return
        tokens = len(self.held.low)
        counted = count_keys(block.mask, block.normalisation, tokens, self.context)
        added: dict[int, Interval] = {}
        for index, head in enumerate(block.heads):
            score = None
            if block.kind == "relu":
                score = self._score(head.score).where(
                    ~self._find_closed(block), Interval(-math.inf, ZERO)
                )
                used = counted != 0
                self._note((number, "head", index), Interval(score.low[used], score.high[used]))
            for (key, target), c in head.value.items():
                if score is not None:
                    product = (score.rectify() * self._read(key, "j")).scale(c)
                else:
                    product = self._sum(
                        self._multiply(q, k, key).scale(c * weight)
                        for (q, k), weight in head.score.items()
                    )
                summed = Interval(*(_multiply(end, counted).sum(1) for end in product))
                place = self._find(target)
                added[place] = added[place] + summed if place in added else summed
        for head in block.heads:
            queries = {self._find(query) for query, _ in head.score}
            if not queries <= self.same or block.mask == "causal":
                self.same -= {self._find(target) for _, target in head.value}
        for place, more in added.items():
            self.held.low[:, place] = self.held.low[:, place] + more.low
            self.held.high[:, place] = self.held.high[:, place] + more.high

    def _sum(self, parts: Iterable[Interval]) -> Interval:
        tokens = len(self.held.low)
        total = Interval(*(np.full((tokens, tokens), ZERO, dtype=object) for _ in range(2)))
        for part in parts:
            total = total + part
        return total

    def _score(self, pairs: Mapping[tuple[Entry, Entry], Fraction]) -> Interval:
        """Bound a score for all pairs of tokens."""
        return self._sum(self._pair(*pair).scale(c) for pair, c in pairs.items())

    def _find_closed(self, block: PlannedBlock) -> Any:
        """Find the pairs of tokens for which every gate of the block is closed, within its
        reach.
        """
        tokens = len(self.held.low)
        closed = np.ones((tokens, tokens), dtype=bool)
        for node in block.nodes:
            if node.attends:
                known = self._score(node.gate) if node.gate else None
                closed &= False if known is None else known.high < 0
        return closed

    def _is_square(self, a: Entry, b: Entry) -> Any:
        """Return, for pairs of tokens, whether an entry of me equals one of j.

        It does for a token and itself, and for all pairs if the entry is shared.
        """
        if self._find(a) != self._find(b):
            return False
        tokens = len(self.held.low)
        return np.eye(tokens, dtype=bool) | (self._find(a) in self.same)

    def _pair(self, query: Entry, key: Entry) -> Interval:
        """Bound the product of an entry of me and one of j."""
        mine = self._read(query, "me")
        product = mine * self._read(key, "j")
        equal = self._is_square(query, key)
        return product if equal is False else mine.square().where(equal, product)

    def _multiply(self, query: Entry, key: Entry, value: Entry) -> Interval:
        """Bound the product of an entry of me and two of j."""
        if self._find(key) == self._find(value):
            return self._read(query, "me") * self._read(key, "j").square()
        if self._is_square(query, value) is not False:
            return self._pair(query, value) * self._read(key, "j")
        return self._pair(query, key) * self._read(value, "j")

    def _apply_units(self, number: int, block: PlannedBlock) -> None:
        units = {
            (frozenset(unit.reads.items()), unit.bias): unit for unit in block.units if unit.reads
        }
        linear: dict[int, Row] = {}
        after = Interval(self.held.low.copy(), self.held.high.copy())
        added: list[tuple[int, Interval]] = []
        different: set[int] = set()
        for index, unit in enumerate(block.units):
            numbers = Interval(unit.bias, unit.bias)
            for entry, c in unit.reads.items():
                numbers = numbers + self._read(entry).scale(c)
            if unit.reads:
                self._note((number, "unit", index), numbers)
            mirror = units.get(
                (frozenset((entry, -c) for entry, c in unit.reads.items()), -unit.bias)
            )
            straight = mirror is not None and mirror.writes == scale_row(unit.writes, Fraction(-1))
            for target, c in unit.writes.items():
                place = self._find(target)
                if {self._find(entry) for entry in unit.reads} - self.same:
                    different.add(place)
                if straight:  # relu(x) − relu(−x) = x: half of it from each
                    row = linear.setdefault(place, {target: Fraction(1)})
                    for entry, weight in unit.reads.items():
                        add_to(row, entry, c * weight / 2)
                    if unit.bias:
                        added.append((place, Interval(c * unit.bias / 2, c * unit.bias / 2)))
                else:
                    added.append((place, numbers.rectify().scale(c)))
        self._apply_hinges(number, block, added, different)
        for place, row in linear.items():
            total = Interval(ZERO, ZERO)
            for entry, c in row.items():
                total = total + self._read(entry).scale(c)
            after.low[:, place], after.high[:, place] = total
        for place, more in added:
            after.low[:, place] = after.low[:, place] + more.low
            after.high[:, place] = after.high[:, place] + more.high
        self.held = after
        self.same -= different

    def _apply_hinges(
        self,
        number: int,
        block: PlannedBlock,
        added: list[tuple[int, Interval]],
        different: set[int],
    ) -> None:
        """Bound functions on knots, which are evaluated within their range only."""
        lines = {node.line for node in block.nodes if not node.attends}
        ranges = [each for each in self.plan.ranges if each.knots and each.line in lines]
        before = 0
        for hinges in block.hinges:
            slope, bias, weight = hinges.net
            for k in range(len(slope)):
                parts = [self._limit(source, ranges) for source in hinges.sources]
                shifted = [part.scale(slope[k]) + Interval(bias[k], bias[k]) for part in parts]
                joined = (np.concatenate(ends) for ends in zip(*shifted, strict=True))
                self._note((number, "hinge", before + k), Interval(*joined))
            for source, target in zip(hinges.sources, hinges.targets, strict=True):
                place = self._find(target)
                limits = self._limit(source, ranges)
                added.append((place, _bound_lines(limits, slope, bias, weight)))
                if self._find(source) not in self.same:
                    different.add(place)
            before += len(slope)

    def _limit(self, source: Entry, ranges: list[Range]) -> Interval:
        """Return the interval of an entry within the ranges of functions on knots."""
        held = self._read(source)
        if not ranges:
            return held
        low: Any = min(each.low for each in ranges)
        high: Any = max(each.high for each in ranges)
        return Interval(np.maximum(held.low, low), np.minimum(held.high, high))


def _bound_lines(
    at: Interval, slope: list[Fraction], bias: list[Fraction], weight: list[Fraction]
) -> Interval:
    """Bound Σ weight·max(slope·x + bias, 0), whose extremes are at its knots and ends."""

    def follow(x: Fraction) -> Fraction:
        net = zip(slope, bias, weight, strict=True)
        return sum((w * max(s * x + b, ZERO) for s, b, w in net), ZERO)

    places = sorted({-b / s for s, b in zip(slope, bias, strict=True) if s})
    met = [(place, follow(place)) for place in places]
    ends: list[tuple[Any, Any]] = []
    for low, high in zip(at.low, at.high, strict=True):
        if math.isinf(low) or math.isinf(high):
            ends.append((-math.inf, math.inf))
            continue
        values = [follow(low), follow(high), *(v for p, v in met if low < p < high)]
        ends.append((min(values), max(values)))
    return Interval(*(np.array(side, dtype=object) for side in zip(*ends, strict=True)))
