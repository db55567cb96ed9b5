"""Writing in place: find out whether a result may be added to the state itself.

That depends on every later reading, a linear form of states and results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from innerloop.language.algebra import MAX_AMPLIFICATION
from innerloop.language.floats import find_size
from innerloop.language.forms import Entry, Row


class Readings:
    """All readings after a block's attention, indexed by the nodes and the states that they
    read.
    """

    def __init__(self, rows: list[Row], states: Collection[Entry]) -> None:
        self.rows = [dict(row) for row in rows]
        self.states = states
        self.nodes: dict[str, list[int]] = defaultdict(list)
        self.readers: dict[Entry, list[int]] = defaultdict(list)
        for number, row in enumerate(self.rows):
            for entry in row:
                if entry in states:
                    self.readers[entry].append(number)
            for name in {entry[0] for entry in row}:
                self.nodes[name].append(number)

    def list_equations(self, name: str) -> list[tuple[Row, Row]]:
        """Return the parts P and Q of each reading that constrains a node's result.

        These are the readings of the node and, repeatedly, those that share states with them. All
        other readings do not constrain it; their solution is 0.
        """
        waiting = list(self.nodes[name])
        reached = set(waiting)
        while waiting:
            for entry in self.rows[waiting.pop()]:
                if entry in self.states:
                    new = [number for number in self.readers[entry] if number not in reached]
                    reached.update(new)
                    waiting += new
        rows = [self.rows[number] for number in sorted(reached)]
        return [
            (
                {e: c for e, c in row.items() if e in self.states},
                {e: c for e, c in row.items() if e[0] == name},
            )
            for row in rows
        ]

    def forget(self, name: str) -> None:
        """Remove a node from all readings."""
        for number in self.nodes[name]:
            row = self.rows[number]
            for entry in [entry for entry in row if entry[0] == name]:
                del row[entry]


def amplifies(solution: Mapping[Any, Row], equations: list[tuple[Row, Row]]) -> bool:
    """Return whether the solution enlarges results too much, and with them their rounding
    errors.
    """
    most = max((find_size(c) for _, right in equations for c in right.values()), default=0.0)
    limit = MAX_AMPLIFICATION * most
    return any(find_size(c) > limit for row in solution.values() for c in row.values())
