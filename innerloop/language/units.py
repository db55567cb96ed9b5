"""Hidden units of one MLP: linear maps by as few units as their rank, equal units merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from innerloop.language.algebra import reduce_stably
from innerloop.language.forms import ONE, Entry, Row, add_to, scale_row
from innerloop.language.plan import Unit


class UnitBuilder:
    """Collects hidden units and linear maps of one MLP."""

    def __init__(self, reduce: bool) -> None:
        self.reduce = reduce
        self.units: dict[Any, tuple[Row, Fraction, Row]] = {}
        self.constant: Row = {}
        self.linear: list[tuple[Row, Row]] = []

    def add(self, reads: Row, bias: Fraction, writes: Row) -> None:
        """Add a unit; equal units are merged, and a unit that is never active is left out."""
        bias = bias + reads.get(ONE, 0)
        reads = {entry: c for entry, c in reads.items() if entry != ONE}
        if not reads and bias <= 0:
            return
        _, _, written = self.units.setdefault((freeze(reads), bias), (reads, bias, {}))
        for target, c in writes.items():
            add_to(written, target, c)

    def add_linear(self, target: Entry, row: Row) -> None:
        """Add a linear form and a constant to a place."""
        if constant := row.get(ONE):
            add_to(self.constant, target, constant)
        rest = {entry: c for entry, c in row.items() if entry != ONE}
        if rest:
            self.linear.append(({target: Fraction(1)}, rest))

    def build(self) -> list[Unit]:
        maps = [each for group in _group_by_places(self.linear) for each in self._reduce(group)]
        for sign in (Fraction(1), Fraction(-1)):  # x = relu(x) − relu(−x)
            for writes, reads in maps:
                self.add(scale_row(reads, sign), Fraction(0), scale_row(writes, sign))
        if self.constant:
            self.add({}, Fraction(1), self.constant)
        return [Unit(*unit) for unit in self.units.values() if unit[2]]

    def _reduce(self, group: list[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
        few = reduce_stably(group, written=0) if self.reduce else group
        places = list(dict.fromkeys(entry for _, row in group for entry in row))
        if len(few) < len(places):
            return few
        # No fewer than the places: read these, and nothing cancels.
        parts = []
        for place in places:
            written: Row = {}
            for targets, row in group:
                for target, c in targets.items():
                    add_to(written, target, c * row.get(place, Fraction(0)))
            parts.append((written, {place: Fraction(1)}))
        return [(written, read) for written, read in parts if written]


def _group_by_places(rows: list[tuple[Row, Row]]) -> list[list[tuple[Row, Row]]]:
    """Group rows that have places in common, directly or through others; each group is one map."""
    leader: dict[Entry, Entry] = {}

    def find(entry: Entry) -> Entry:
        while leader.setdefault(entry, entry) != entry:
            entry = leader[entry]
        return entry

    for _, row in rows:
        first, *others = row
        for entry in others:
            leader[find(entry)] = find(first)
    groups: dict[Entry, list[tuple[Row, Row]]] = defaultdict(list)
    for pair in rows:
        groups[find(next(iter(pair[1])))].append(pair)
    return list(groups.values())


def freeze(row: Mapping[Any, Fraction]) -> frozenset[tuple[Any, Fraction]]:
    """Return a sparse form as a hashable key."""
    return frozenset(row.items())
