"""A plan: blocks as exact sparse weights between entries of registers, before emission.

All numbers are rational here. `emission` converts them to tensors, and `rational` computes with
them directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from innerloop.language.errors import Line
from innerloop.language.forms import ONE, Entry, Form, Pairs, Row
from innerloop.language.nodes import Node, Range

SCRATCH = "scratch"


class PlannedHead(NamedTuple):
    """A head: its score, and its value as {(entry of j, target): coefficient}."""

    score: Pairs
    value: Pairs


class Unit(NamedTuple):
    """A hidden unit, which adds writes·max(reads·h + bias, 0) to the stream h."""

    reads: Row
    bias: Fraction
    writes: Row


class Hinges(NamedTuple):
    """The same units on several entries: target += Σ weight·max(slope·source + bias, 0).

    `net` contains the slopes, the biases and the weights.
    """

    sources: list[Entry]
    targets: list[Entry]
    net: tuple[list[Fraction], ...]


@dataclass(eq=False)
class PlannedBlock:
    """One block: its attention, if it has heads, its hidden units, and the nodes it computes.

    labels   the author's name for the content of each scratch place while the block runs
    new_labels  the author's name for the content after the MLP, if that is different
    cleared  the names of the registers and results that its MLP clears
    states   the states that have their new value after this block
    assigned  the lines that assign these states
    """

    kind: str
    mask: str
    normalisation: str
    heads: list[PlannedHead] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    hinges: list[Hinges] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    labels: dict[Entry, str] = field(default_factory=dict)
    new_labels: dict[Entry, str] = field(default_factory=dict)
    cleared: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    assigned: list[Line] = field(default_factory=list)

    @property
    def hidden(self) -> int:
        return len(self.units) + sum(len(h.sources) * len(h.net[0]) for h in self.hinges)

    @property
    def lines(self) -> list[Line]:
        """The lines of the program that this block computes."""
        return sorted({node.line for node in self.nodes if node.line.number})

    @property
    def all_lines(self) -> list[Line]:
        """The lines that this block computes, and the lines that assign its states."""
        return sorted({*self.lines, *(line for line in self.assigned if line.number)})

    def rename(self, places: Mapping[Entry, Entry]) -> None:
        """Replace places by others."""

        def move(row: Row) -> Row:
            return {places.get(entry, entry): c for entry, c in row.items()}

        def move_pairs(pairs: Pairs) -> Pairs:
            return {(places.get(a, a), places.get(b, b)): c for (a, b), c in pairs.items()}

        self.heads = [PlannedHead(*map(move_pairs, head)) for head in self.heads]
        self.units = [Unit(move(unit.reads), unit.bias, move(unit.writes)) for unit in self.units]
        self.hinges = [
            Hinges(
                [places.get(e, e) for e in each.sources],
                [places.get(e, e) for e in each.targets],
                each.net,
            )
            for each in self.hinges
        ]
        self.labels |= {
            new: self.labels.get(old, new[0]) for old, new in places.items() if new[0] != SCRATCH
        }
        self.new_labels = {places.get(e, e): name for e, name in self.new_labels.items()}

    def list_entries(self) -> set[Entry]:
        """List all entries that heads and units read and write."""
        pairs = [pair for head in self.heads for part in head for pair in part]
        return {entry for pair in pairs for entry in pair}


@dataclass(eq=False)
class Plan:
    """The blocks of a step, of the prologue or of the read-out.

    scratch     places that the blocks use for intermediate results; they are 0 before and after
    in_place    nodes that attention adds to the state itself, without a place of their own
    depth       blocks on the critical path: no schedule has fewer
    places      the scratch places of each node
    """

    blocks: list[PlannedBlock]
    scratch: int
    depth: int
    results: dict[str, Form]
    in_place: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    places: dict[Any, Entry] = field(default_factory=dict)

    @property
    def needs_one(self) -> bool:
        return any(ONE in block.list_entries() for block in self.blocks)

    def rename(self, places: Mapping[Entry, Entry]) -> None:
        """Make the blocks use other places."""
        for block in self.blocks:
            block.rename(places)
        self.places = {node: places.get(entry, entry) for node, entry in self.places.items()}

    def list_scratch(self) -> set[int]:
        """List the scratch places that have no other name."""
        return {i for register, i in self.places.values() if register == SCRATCH}

    def count(self) -> dict[str, int]:
        """Return the number of blocks, heads of the largest block, all hidden units, and
        scratch places.
        """
        return {
            "blocks": len(self.blocks),
            "heads": max((len(block.heads) for block in self.blocks), default=0),
            "hidden": sum(block.hidden for block in self.blocks),
            "scratch": self.scratch,
        }
