"""Between trace and schedule: hidden units that are only read together are kept as one result.

`me.s = relu(a) − relu(b)` has two layers of units, and whoever reads s reads their difference: it
needs one place for each entry, not two. Units are merged if every reading of the one is a reading
of the other too, always in the same ratio.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from innerloop.language.forms import Row
from innerloop.language.trace import Node, Trace

Uses = dict[Any, Fraction]
"""Where a node is read, (reading, entry), and its coefficient there."""


def merge_units(trace: Trace) -> None:
    """Merge layers of hidden units that are only read together."""
    uses: dict[str, Uses] = defaultdict(dict)
    for reading, row in _list_readings(trace):
        for (name, i), c in row.items():
            uses[name][reading, i] = c
    groups: dict[Any, list[Node]] = defaultdict(list)
    for node in trace.nodes:
        if not node.attends and uses[node.name]:
            scale = uses[node.name][min(uses[node.name], key=repr)]
            shares = frozenset((place, c / scale) for place, c in uses[node.name].items())
            groups[node.shape, shares].append(node)
    for first, *others in groups.values():
        scale = min(uses[first.name], key=repr)
        for other in others:
            ratio = uses[other.name][scale] / uses[first.name][scale]
            first.parts += [part.scale(ratio) for part in other.parts]
            _forget(trace, other.name)
            trace.nodes.remove(other)
        if others:  # after all that its units read
            trace.nodes.remove(first)
            trace.nodes.insert(_find_place(trace, first), first)


def _list_readings(trace: Trace) -> Iterator[tuple[Any, Row]]:
    """Yield every row of a node, result or range that reads entries, with a name for it."""
    for node in trace.nodes:
        for p, part in enumerate(node.parts):
            for i, row in enumerate(part.rows):
                yield (node.name, p, i), row
        scores = [node.gate, *(term.score for term in node.terms)]
        for s, score in enumerate(scores):
            for (query, key), c in score.items():
                yield (node.name, "query", s, key), {query: c}
                yield (node.name, "key", s, query), {key: c}
        for s, term in enumerate(node.terms):
            for (index, key), c in term.value.items():
                yield (node.name, "value", s, index), {key: c}
    for name, form in trace.results.items():
        for i, row in enumerate(form.rows):
            yield ("result", name, i), row
    for r, each in enumerate(trace.ranges):
        for i, row in enumerate(each.rows):
            yield ("range", r, i), row


def _forget(trace: Trace, name: str) -> None:
    """Take the entries of a node out of all readings: another one stands for both."""

    def drop(row: dict[Any, Fraction], sides: tuple[int, ...] | None) -> None:
        for key in list(row):
            entries = [key] if sides is None else [key[side] for side in sides]
            if any(entry[0] == name for entry in entries):
                del row[key]

    for node in trace.nodes:
        for part in node.parts:
            for row in part.rows:
                drop(row, None)
        for score in (node.gate, *(term.score for term in node.terms)):
            drop(score, (0, 1))
        for term in node.terms:
            drop(term.value, (1,))
    for form in [*trace.results.values(), *trace.ranges]:
        for row in form.rows:
            drop(row, None)


def _find_place(trace: Trace, node: Node) -> int:
    """Return where a node may stand in the list: after all that it reads."""
    reads = node.list_reads()
    return 1 + max((i for i, each in enumerate(trace.nodes) if each.name in reads), default=-1)
