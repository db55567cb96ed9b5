"""Pass 6, heads: compute the linear terms of a block with as few heads as their rank.

In a ReLU block, each linear head becomes a pair of mirrored heads. A term with an activation in the
program becomes a head directly; terms with equal scores share one head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from innerloop.language.algebra import reduce_stably
from innerloop.language.forms import Entry, Pairs, Row, add_rows, add_to, scale_row, times
from innerloop.language.nodes import Node
from innerloop.language.plan import PlannedHead
from innerloop.language.schedule import BlockKind
from innerloop.language.target import Target
from innerloop.language.units import freeze


class HeadBuilder:
    """Builds the heads of one block.

    `where` maps the entries of results to their places. `in_place` contains the results that
    attention adds to the state itself.
    """

    def __init__(
        self,
        chosen: BlockKind,
        target: Target,
        where: Mapping[Entry, Entry],
        in_place: Mapping[str, Mapping[Entry, Row]],
    ) -> None:
        self.chosen, self.target, self.where, self.in_place = chosen, target, where, in_place
        self.linear: dict[Any, list[Any]] = defaultdict(list)  # gate → (score, value)
        self.active: dict[Any, tuple[Any, Any]] = {}  # score with its gate → itself, value

    def build(self, nodes: list[Node]) -> list[PlannedHead]:
        """Return the heads that compute all sums over tokens among these nodes."""
        for node in nodes:
            if node.attends:
                self._add(node)
        heads = []
        for gate, products in self.linear.items():
            reduces = self.target.peepholes.reduce
            few = reduce_stably(products, written=1) if reduces else products
            for score, value in few:
                heads.append(PlannedHead(add_rows(score, dict(gate)), value))
                if self.chosen.kind == "relu":  # s·v = relu(s)·v + relu(−s)·(−v)
                    mirrored = add_rows(scale_row(score, Fraction(-1)), dict(gate))
                    heads.append(PlannedHead(mirrored, scale_row(value, Fraction(-1))))
        heads += [PlannedHead(score, value) for score, value in self.active.values() if value]
        return heads

    def _add(self, node: Node) -> None:
        """Collect the terms of one node, with places instead of entries."""
        factor = self._find_factor(node)
        gate = self._place_pairs(node.gate)
        for term in node.terms:
            score = self._place_pairs(term.score)
            value = self._place_value(node, term.value, factor)
            if term.active:  # equal scores share a head
                whole = add_rows(score, gate)
                _, written = self.active.setdefault(freeze(whole), (whole, {}))
                for pair, c in value.items():
                    add_to(written, pair, c)
            elif value and score:
                self.linear[freeze(gate)].append((score, value))

    def _find_factor(self, node: Node) -> Fraction:
        """Return the factor that converts the block's normalisation to that of the node."""
        normalisation = node.setting.normalisation if node.setting else None
        if normalisation == self.chosen.normalisation:
            return Fraction(1)
        if self.chosen.normalisation == "1":  # an average, computed as a sum
            return Fraction(1, self.target.counts[self.chosen.mask])
        if normalisation == "1":  # a sum, computed as an average
            return Fraction(self.target.counts[self.chosen.mask])
        return Fraction(1)  # any average will do

    def _place(self, entry: Entry) -> Entry:
        return self.where.get(entry, entry)

    def _place_pairs(self, pairs: Pairs) -> Pairs:
        placed: Pairs = {}
        for (query, key), c in pairs.items():
            add_to(placed, (self._place(query), self._place(key)), c)
        return placed

    def _place_value(self, node: Node, value: Mapping[Any, Fraction], factor: Fraction) -> Pairs:
        """Return a value with the places that it is written to.

        If the node's result is added to the state, these are places of the state.
        """
        placed: Pairs = {}
        direct = self.in_place.get(node.name)
        for (index, key), c in value.items():
            entry = (node.name, index)
            goals = (
                {self._place(entry): Fraction(1)}
                if direct is None
                else {target: row[entry] for target, row in direct.items() if entry in row}
            )
            for goal, e in goals.items():
                add_to(placed, (self._place(key), goal), times(times(c, e), factor))
        return placed
