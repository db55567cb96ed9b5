"""Scouting for an exact comparison: search for random points that show ReLUs from new sides.

Rational arithmetic is slow, and most points show no new side. Candidates of very different sizes
are run in floating point first. The exact comparison uses only the points at which a unit or head
is active, or silent, for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from innerloop.language.forms import Entry
from innerloop.language.plan import Plan, PlannedBlock
from innerloop.language.rational import count_keys
from innerloop.transformer import Layout


class Sides(NamedTuple):
    """For each ReLU, whether it is active for some token at a point, and whether it is silent."""

    active: dict[Any, bool]
    silent: dict[Any, bool]


class _Block(NamedTuple):
    """A planned block with its weights as float matrices."""

    relu: bool
    heads: list[tuple[Any, Any]]
    inner: Any
    bias: Any
    outer: Any
    hinges: list[tuple[list[int], list[int], list[Any]]]
    plan: PlannedBlock


class Scout:
    """Runs the blocks of a plan in floating point, and records which ReLUs are active."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self.layout = layout
        self._blocks = [self._convert(block) for block in plan.blocks]

    def look(self, stream: Any, context: int) -> Sides:
        """Run one stream, (tokens, width), and record both sides of every ReLU."""
        sides = Sides({}, {})
        for number, block in enumerate(self._blocks):
            stream = self._attend(block, stream, context, number, sides)
            numbers = stream @ block.inner.T + block.bias
            for index, unit in enumerate(block.plan.units):
                if unit.reads:
                    _note(sides, (number, "unit", index), numbers[:, index])
            update = np.maximum(numbers, 0) @ block.outer
            before = 0
            for sources, targets, (slope, bias, weight) in block.hinges:
                each = stream[:, sources, None] * slope + bias
                for k in range(len(slope)):
                    _note(sides, (number, "hinge", before + k), each[..., k])
                added = (np.maximum(each, 0) * weight).sum(-1)
                for place, column in zip(targets, added.T, strict=True):
                    update[:, place] += column
                before += len(slope)
            stream = stream + update
        return sides

    def _attend(self, block: _Block, stream: Any, context: int, number: int, sides: Sides) -> Any:
        if not block.heads:
            return stream
        kind = block.plan
        counted = count_keys(kind.mask, kind.normalisation, len(stream), context).astype(float)
        out = stream.copy()
        for index, (score, value) in enumerate(block.heads):
            scores = stream @ score @ stream.T
            if block.relu:
                _note(sides, (number, "head", index), scores[counted != 0])
                scores = np.maximum(scores, 0)
            out = out + (scores * counted) @ stream @ value
        return out

    def _convert(self, block: PlannedBlock) -> _Block:
        width = self.layout.width
        heads = [(self._place(head.score), self._place(head.value)) for head in block.heads]
        inner, outer = (np.zeros((len(block.units), width)) for _ in range(2))
        for row, unit in enumerate(block.units):
            self._fill(inner[row], unit.reads)
            self._fill(outer[row], unit.writes)
        bias = np.array([float(unit.bias) for unit in block.units])
        hinges = [
            (
                [self._find(entry) for entry in each.sources],
                [self._find(entry) for entry in each.targets],
                [np.array([float(c) for c in part]) for part in each.net],
            )
            for each in block.hinges
        ]
        return _Block(block.kind == "relu", heads, inner, bias, outer, hinges, block)

    def _place(self, pairs: Mapping[tuple[Entry, Entry], Any]) -> Any:
        matrix = np.zeros((self.layout.width,) * 2)
        for (a, b), c in pairs.items():
            matrix[self._find(a), self._find(b)] += float(c)
        return matrix

    def _fill(self, row: Any, weights: Mapping[Entry, Any]) -> None:
        for entry, c in weights.items():
            row[self._find(entry)] += float(c)

    def _find(self, entry: Entry) -> int:
        return self.layout[entry[0]].places[entry[1]]


def _note(sides: Sides, key: Any, numbers: Any) -> None:
    """Record the sides of one ReLU; for hinges on several entries, one active entry is enough."""
    clear = 1e-9 * (1 + np.abs(numbers).max(initial=0.0))  # nearer to 0 is too near to tell
    sides.active[key] = sides.active.get(key, False) or bool((numbers > clear).any())
    sides.silent[key] = sides.silent.get(key, False) or bool((numbers < -clear).any())


def shows_more(sides: Sides, active: set[Any], silent: set[Any]) -> bool:
    """Return whether a point shows a ReLU from a side that was not observed yet."""
    new = {key for key, on in sides.active.items() if on} - active
    return bool(new or {key for key, off in sides.silent.items() if off} - silent)
