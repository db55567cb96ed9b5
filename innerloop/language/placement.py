"""Passes 3 to 7, placement: choose the places of results, and the heads and units that compute
them.

In place     attention adds a result to the state itself, if an exact solution G of P G = Q exists:
             every later reading ρ = P·state + Q·result then has the same value
Early write  a result that is the new value of a state is written to the place of that state, which
             is cleared for it, if the old value is not read any more
Early clear  a state that is not read any more is cleared before the last block, which may then
             write its new value in place
Liveness     other results have scratch places from their block to their last reader, whose MLP
             clears them for others
Heads        the linear terms of a block are reduced to as few heads as their rank
Units        linear parts of an MLP are reduced to their rank; equal units are merged, and units
             that are only read together become one result (merging.py)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

from innerloop.language.algebra import solve
from innerloop.language.forms import ONE, Entry, Row, add_to, scale_row
from innerloop.language.heads import HeadBuilder
from innerloop.language.in_place import Readings, amplifies
from innerloop.language.merging import forget_nodes, list_readings, merge_units
from innerloop.language.nodes import Node, Range
from innerloop.language.plan import SCRATCH, Hinges, Plan, PlannedBlock
from innerloop.language.schedule import Schedule, schedule_nodes
from innerloop.language.target import Target
from innerloop.language.trace import Trace
from innerloop.language.units import UnitBuilder

MIN_HINGES = 16
"""If units on several entries have at least this many hinges, the hinges are stored once."""


def plan_blocks(trace: Trace, empty: Collection[str], target: Target, tidy: bool = True) -> Plan:
    """Plan the blocks that compute every result of a trace.

    The registers in `empty` are 0 before these blocks. Scratch places keep their last contents,
    which nothing reads again, unless `tidy` is set.
    """
    if target.peepholes.merge:
        merge_units(trace)
    results = {
        (name, i): dict(row)
        for name, form in trace.results.items()
        for i, row in enumerate(form.rows)
    }
    names = {entry[0] for row in results.values() for entry in row}
    schedule = schedule_nodes(trace.nodes, names, target.relu, target.counts)
    written = [node.copy() for node in schedule.nodes]  # as the author has them
    planner = _Planner(schedule, results, target, tidy)
    if target.peepholes.early_write:
        planner.write_early(empty)
    if target.peepholes.in_place:
        planner.clear_early(trace, empty)
        planner.write_in_place()
    blocks = [planner.plan_block(number) for number in range(1, len(schedule.blocks) + 1)]
    blocks = [block for block in blocks if block.heads or block.units or block.hinges]
    if blocks:
        known = trace.assigned
        blocks[-1].assigned = [known[name] for name in blocks[-1].states if name in known]
    return Plan(
        blocks,
        planner.scratch.used,
        schedule.depth,
        trace.results,
        list(planner.in_place),
        written,
        _list_ranges(trace, schedule),
        planner.where,
    )


def _list_ranges(trace: Trace, schedule: Schedule) -> list[Range]:
    """List the ranges of the nodes that a result needs."""
    dropped = {node.name for node in trace.nodes} - {node.name for node in schedule.nodes}
    return [
        each
        for each in trace.ranges
        if not any(name in dropped for row in each.rows for name, _ in row)
    ]


class _Scratch:
    """The scratch places; the lowest free one is used first."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.used = 0

    def take(self) -> Entry:
        if not self.free:
            self.free.append(self.used)
            self.used += 1
        return SCRATCH, self.free.pop(0)

    def release(self, entries: Collection[Entry]) -> None:
        self.free = sorted({*self.free, *(place for _, place in entries)})


class _Planner:
    """Plans one block after another, and records the place of every result."""

    def __init__(
        self, schedule: Schedule, results: dict[Entry, Row], target: Target, tidy: bool
    ) -> None:
        self.schedule, self.results, self.target, self.tidy = schedule, results, target, tidy
        self.last = len(schedule.blocks)
        self.known = {node.name: node for node in schedule.nodes}
        self.final_names = {entry[0] for row in results.values() for entry in row}
        self.last_use: dict[str, int] = defaultdict(int)
        for node in schedule.nodes:
            for name in node.list_reads():
                self.last_use[name] = max(self.last_use[name], node.block)
        for name in self.final_names & set(self.known):
            self.last_use[name] = self.last
        self.in_place: dict[str, dict[Entry, Row]] = {}
        self.early: set[str] = set()
        self.cleared: dict[int, list[Entry]] = defaultdict(list)
        self.where: dict[Entry, Entry] = {}
        self.scratch = _Scratch()

    def _is_late_unit(self, name: str) -> bool:
        """Return whether these are hidden units of the last block, which write to the state
        directly.
        """
        node = self.known.get(name)
        return node is not None and not node.attends and node.block == self.last

    def write_early(self, empty: Collection[str]) -> None:
        """Write a state's new value to the state's own places if the old value is not read any
        more.
        """
        read: dict[Entry, int] = defaultdict(int)
        for node in self.schedule.nodes:
            for entry in node.list_entries():
                read[entry] = max(read[entry], node.block)
        for target, row in self.results.items():
            for entry in row:
                if entry != target:
                    read[entry] = self.last
        for node in self.schedule.nodes:
            goals = {
                next(iter(row)): entry
                for entry, row in self.results.items()
                if list(row.values()) == [1] and next(iter(row))[0] == node.name
            }
            dead = max([1, *(read[entry] for entry in goals.values())])
            late = node.block == self.last or dead > node.block - node.attends
            if late or len(goals) < node.size:
                continue
            self.where |= goals
            self.early |= {node.name, *(name for name, _ in goals.values())}
            for entry in goals.values():
                self.results[entry] = {entry: Fraction(1)}
                if entry[0] not in empty:
                    self.cleared[dead].append(entry)

    def clear_early(self, trace: Trace, empty: Collection[str]) -> None:
        """Treat states that are empty, or can be cleared, as 0 before the last block."""
        for name, form in trace.results.items():
            sources = {self.known[e[0]] for row in form.rows for e in row if e[0] in self.known}
            fed = any(node.attends and node.block == self.last for node in sources)
            dead = max(self.last_use[name], 1)
            early = self.target.peepholes.early_clear and dead < self.last and fed
            if name in self.final_names | self.early or not (name in empty or early):
                continue
            entries = [(name, i) for i in range(len(form.rows))]
            if name not in empty:
                self.cleared[dead] += entries
            for entry in entries:
                add_to(self.results[entry], entry, Fraction(1))

    def write_in_place(self) -> None:
        """Find the results of attention that can be added to the state itself.

        Every later reading is P·state + Q·result, with rows P and Q for each. If P G = Q has a
        solution, G·result is added to the state, and the readings do not need the result any more.
        """
        for number in range(1, self.last + 1):
            readings = Readings([*self._list_later(number)], self.results)
            for node in self.schedule.nodes:
                if not node.attends or node.block != number:
                    continue
                equations = readings.list_equations(node.name)
                solution = solve(equations)
                if solution is None or not solution or amplifies(solution, equations):
                    continue
                if any(e in solution for c in range(number, self.last) for e in self.cleared[c]):
                    continue  # it would be cleared with the state's old value
                self.in_place[node.name] = solution
                readings.forget(node.name)
            forget_nodes(self.schedule.nodes, self.results.values(), set(self.in_place))

    def _list_later(self, number: int) -> Iterator[Row]:
        """Yield all readings after the attention of a block."""
        for node in self.schedule.nodes:
            if node.block > number or (node.block == number and not node.attends):
                yield from list_readings(node)
        for row in self.results.values():
            yield {e: c for e, c in row.items() if not self._is_late_unit(e[0])}

    def plan_block(self, number: int) -> PlannedBlock:
        """Plan one block: its heads, and the MLP after them."""
        chosen = self.schedule.blocks[number - 1]
        here = [node for node in self.schedule.nodes if node.block == number]
        for node in here:
            if node.attends and node.name not in self.in_place:
                self._take(node)
        block = PlannedBlock(*(chosen or ("linear", "context", "1/n")), nodes=here)
        if chosen is not None:
            block.heads = HeadBuilder(chosen, self.target, self.where, self.in_place).build(here)
        self._plan_mlp(number, here, block)
        self._label(number, block)
        return block

    def _label(self, number: int, block: PlannedBlock) -> None:
        """Record the author's names for scratch places, and for places that are cleared or new."""
        for node in self.schedule.nodes:
            if node.name in self.early:
                continue
            alive = node.block <= number <= self.last_use[node.name]
            if alive and (node.name, 0) in self.where:
                name = node.author_name
                for i in range(node.size):
                    place = self.where[node.name, i]
                    block.labels.setdefault(place, name)
                    if node.block == number and not node.attends:
                        block.new_labels[place] = name
                if self.last_use[node.name] == number and self.tidy:
                    block.cleared.append(name)
        block.cleared += dict.fromkeys(name for name, _ in self.cleared[number])
        if number == self.last:
            block.states = list(dict.fromkeys(name for name, _ in self.results))

    def _take(self, node: Node) -> None:
        if node.name not in self.early:
            for i in range(node.size):
                self.where[node.name, i] = self.scratch.take()

    def _plan_mlp(self, number: int, here: list[Node], block: PlannedBlock) -> None:
        """Plan hidden units: new values, cleared places, and in the last block the new state."""
        units = UnitBuilder(self.target.peepholes.reduce)
        held = dict(self.where)  # what this MLP reads, before places are given away
        ending = [
            self.where[node.name, i]
            for node in self.schedule.nodes
            if (node.name, 0) in self.where and self.last_use[node.name] == number and self.tidy
            if node.name not in self.early
            for i in range(node.size)
        ]
        for entry in [*self.cleared[number], *ending]:
            units.add_linear(entry, {entry: Fraction(-1)})
        if self.target.peepholes.reuse:
            self.scratch.release(ending)
        for node in here:
            if not node.attends:
                self._plan_units(node, held, units, block)
        if not self.target.peepholes.reuse:
            self.scratch.release(ending)
        if number == self.last:
            for entry, row in self.results.items():
                remaining = {e: c for e, c in row.items() if not self._is_late_unit(e[0])}
                change = self._locate(remaining, held)
                add_to(change, entry, Fraction(-1))
                units.add_linear(entry, change)
        block.units = units.build()

    def _locate(self, row: Row, held: Mapping[Entry, Entry]) -> Row:
        """Return a row in terms of places.

        Results written in place are part of the state already.
        """
        located: Row = {}
        for entry, c in row.items():
            if entry[0] not in self.in_place:
                add_to(located, held.get(entry, entry), c)
        return located

    def _plan_units(
        self, node: Node, held: Mapping[Entry, Entry], units: UnitBuilder, block: PlannedBlock
    ) -> None:
        late = node.block == self.last
        if not late:
            self._take(node)
        writes = [
            {t: row[node.name, i] for t, row in self.results.items() if (node.name, i) in row}
            if late
            else {self.where[node.name, i]: Fraction(1)}
            for i in range(node.size)
        ]
        for part in node.parts:
            rows = [self._locate(row, held) for row in part.rows]
            if len(part.net[0]) >= MIN_HINGES and (pairs := _pair_entries(rows, writes)):
                block.hinges.append(Hinges(*pairs, part.net))
                continue
            for row, write in zip(rows, writes, strict=True):
                for slope, bias, weight in zip(*part.net, strict=True):
                    units.add(scale_row(row, slope), bias, scale_row(write, weight))


def _pair_entries(rows: list[Row], writes: list[Row]) -> tuple[list[Entry], list[Entry]] | None:
    """Return sources and targets if each row and each write is a single entry of one register."""
    sides = []
    for part in (rows, writes):
        if any(len(row) != 1 or set(row.values()) != {1} or ONE in row for row in part):
            return None
        sides.append([next(iter(row)) for row in part])
        if len({entry[0] for entry in sides[-1]}) > 1:
            return None
    return sides[0], sides[1]
