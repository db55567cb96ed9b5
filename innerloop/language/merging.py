"""Merging, between trace and schedule: hidden units that are only read together become one result.

A reader of `me.s = relu(a) − relu(b)` reads the difference of two layers of hidden units. The
difference needs one place for each entry, and the two layers would need two. Layers are merged if
every reading of one layer also reads the other, always in the same ratio.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from innerloop.language.forms import Row
from innerloop.language.nodes import Node
from innerloop.language.trace import Trace

Uses = dict[Any, Fraction]
"""The readings of a node: a coefficient for each pair (reading, entry)."""


def merge_units(trace: Trace) -> None:
    """Merge layers of hidden units that are only read together."""
    uses: dict[str, Uses] = defaultdict(dict)
    units = {node.name for node in trace.nodes if not node.attends}
    readings = [row for node in trace.nodes for row in list_readings(node)]
    for form in (*trace.results.values(), *trace.ranges):
        readings += form.rows
    for reading, row in enumerate(readings):
        for (name, i), c in row.items():
            if name in units:
                uses[name][reading, i] = c
    groups: dict[Any, list[Node]] = defaultdict(list)
    for node in trace.nodes:
        if node.name in units and uses[node.name]:
            scale = uses[node.name][min(uses[node.name])]
            shares = frozenset((place, c / scale) for place, c in uses[node.name].items())
            groups[node.shape, shares].append(node)
    for first, *others in groups.values():
        scale = min(uses[first.name])
        for other in others:
            ratio = uses[other.name][scale] / uses[first.name][scale]
            first.parts += [part.scale(ratio) for part in other.parts]
            first.shared &= other.shared
            rows = [row for form in (*trace.results.values(), *trace.ranges) for row in form.rows]
            forget_nodes(trace.nodes, rows, {other.name})
            trace.nodes.remove(other)
        if others:  # after all that its units read
            trace.nodes.remove(first)
            trace.nodes.insert(_find_place(trace, first), first)


def list_readings(node: Node) -> Iterator[Row]:
    """Yield every linear reading of a node.

    A score is linear in the query for each entry of the key, and vice versa.
    """
    for part in node.parts:
        yield from part.rows
    for score in (node.gate, *(term.score for term in node.terms)):
        queries, keys = defaultdict[Any, Row](dict), defaultdict[Any, Row](dict)
        for (query, key), c in score.items():
            queries[key][query] = c
            keys[query][key] = c
        yield from (*queries.values(), *keys.values())
    for term in node.terms:
        values: dict[int, Row] = defaultdict(dict)
        for (index, key), c in term.value.items():
            values[index][key] = c
        yield from values.values()


def forget_nodes(nodes: Iterable[Node], rows: Iterable[Row], names: set[str]) -> None:
    """Remove the entries of nodes from all readings, because another node replaces them."""

    def drop(row: dict[Any, Fraction], sides: tuple[int, ...] | None) -> None:
        for key in list(row):
            entries = [key] if sides is None else [key[side] for side in sides]
            if any(entry[0] in names for entry in entries):
                del row[key]

    for node in nodes:
        for part in node.parts:
            for row in part.rows:
                drop(row, None)
        for score in (node.gate, *(term.score for term in node.terms)):
            drop(score, (0, 1))
        for term in node.terms:
            drop(term.value, (1,))
    for row in rows:
        drop(row, None)


def _find_place(trace: Trace, node: Node) -> int:
    """Return the first position in the list at which a node comes after all nodes that it reads."""
    reads = node.list_reads()
    return 1 + max((i for i, each in enumerate(trace.nodes) if each.name in reads), default=-1)
