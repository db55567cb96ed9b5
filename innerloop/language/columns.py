"""The data of a program's picture: for each block, the strokes of heads and units, lines,
lifetimes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.language.construction import ProgramConstruction
from innerloop.language.definition import Definition
from innerloop.language.errors import Line
from innerloop.language.forms import Entry, Row
from innerloop.language.naming import Call, Statement, find_returns, find_statement
from innerloop.language.plan import SCRATCH, Plan, PlannedBlock

MAX_STROKES = 4
"""If a block has more groups of hidden units than this, they are drawn as one stroke."""

Marks = dict[str, set[str]]
"""The use of each register: query, key, value, read, write or clear."""


class Stroke(NamedTuple):
    """A group of heads, or of hidden units, that use the same registers in the same way."""

    kind: str
    number: int
    marks: Marks

    @property
    def label(self) -> str:
        return f"×{self.number:,}" if self.number else ""


class Column(NamedTuple):
    """One block, or a read-out without blocks.

    alive  the temporaries that exist in this block, each with the index of the first stroke that
           writes it and of the last one that reads it, or None if that is in another block
    """

    titles: list[str]
    lines: list[str]
    strokes: list[Stroke]
    alive: dict[str, tuple[int | None, int | None]]

    def list_names(self) -> list[str]:
        """List the registers and temporaries that need a row."""
        return [*(name for stroke in self.strokes for name in stroke.marks), *self.alive]


def describe_program(construction: ProgramConstruction) -> tuple[list[str], list[Column]]:
    """Return the registers and the blocks of a program.

    If the steps repeat, only those of the first.
    """
    compiled = construction.compiled
    registers = [name for name in construction.layout.registers if name != SCRATCH]
    chosen = {"prologue": compiled.prologue, "step": compiled.steps[0]}
    chosen["read-out"] = compiled.epilogue
    columns = []
    for part, plan in chosen.items():
        if plan is not None:
            columns += _describe_part(part, plan, registers, construction.definition)
    if compiled.epilogue is None:
        columns.append(_describe_readout(construction))
    return registers, columns


def _describe_part(
    part: str, plan: Plan, registers: list[str], definition: Definition
) -> Iterator[Column]:
    living: set[str] = set()
    for number, block in enumerate(plan.blocks, 1):
        count = len(plan.blocks)
        namer = _Namer(block, registers, definition.states)
        strokes = [*_group_heads(block, namer), *_group_units(block, namer)]
        alive, living = _find_alive(namer, strokes, living)
        titles = [f"{part} {number}/{count}" if count > 1 else part, *_describe_size(block)]
        lines = _list_lines(block, definition)
        if part == "read-out" and not lines:
            lines = [_describe_own_answer(definition)]
        yield Column(titles, lines, strokes, alive)


class _Namer:
    """Looks up the author's names of stored values before a block's MLP and after it."""

    def __init__(self, block: PlannedBlock, registers: list[str], states: list[str]) -> None:
        self.block, self.registers, self.states = block, registers, states
        self.temporaries = {
            self._tell(entry, name)
            for labels in (block.labels, block.new_labels)
            for entry, name in labels.items()
            if entry[0] != name
        }
        self.cleared = {
            self.before(entry)
            for entry, name in block.labels.items()
            if name in block.cleared and entry[0] != name
        }
        self.cleared |= {name for name in block.cleared if name in registers} - self.temporaries

    def _tell(self, entry: Entry, name: str) -> str:
        """Distinguish the name of a result from that of the register that it is assigned to."""
        if name not in self.registers or name == entry[0]:
            return name
        return f"{name}, new" if name in self.states else f"{name}, temporary"

    def before(self, entry: Entry) -> str:
        return self._tell(entry, self.block.labels.get(entry, entry[0]))

    def after(self, entry: Entry) -> str:
        name = self.block.new_labels.get(entry)
        return self.before(entry) if name is None else self._tell(entry, name)


def _group_heads(block: PlannedBlock, namer: _Namer) -> list[Stroke]:
    """Group the heads that read and write the same registers."""
    groups: dict[Any, int] = defaultdict(int)
    for head in block.heads:
        score = frozenset((namer.before(q), namer.before(k)) for q, k in head.score)
        value = frozenset((namer.before(k), namer.before(t)) for k, t in head.value)
        groups[score, value] += 1
    strokes = []
    for (score, value), count in groups.items():
        marks: Marks = defaultdict(set)
        for pairs, roles in ((score, ("query", "key")), (value, ("value", "write"))):
            for pair in sorted(pairs):
                for name, role in zip(pair, roles, strict=True):
                    marks[name].add(role)
        strokes.append(Stroke("head", count, dict(marks)))
    return strokes


def _group_units(block: PlannedBlock, namer: _Namer) -> list[Stroke]:
    """Group the hidden units that read and write the same registers; too many groups become one."""
    groups: dict[Any, int] = defaultdict(int)
    for unit in block.units:
        groups[_describe_unit(unit.reads, unit.writes, namer)] += 1
    for hinges in block.hinges:
        reads, writes = (dict.fromkeys(s, Fraction(1)) for s in (hinges.sources, hinges.targets))
        key = _describe_unit(reads, writes, namer)
        groups[key] += len(hinges.sources) * len(hinges.net[0])
    if len(groups) > MAX_STROKES:
        whole = (frozenset().union(*sets) for sets in zip(*groups, strict=True))
        groups = {tuple(whole): sum(groups.values())}
    strokes = []
    for (read, written, cleared), count in groups.items():
        marks: Marks = defaultdict(set)
        for names, role in ((read, "read"), (written, "write"), (cleared, "clear")):
            for name in sorted(names):
                marks[name].add(role)
        strokes.append(Stroke("unit", count, dict(marks)))
    return strokes


def _describe_unit(reads: Row, writes: Row, namer: _Namer) -> tuple[frozenset[str], ...]:
    """Return the registers that a unit reads, writes and clears.

    A unit clears an entry if it reads it and subtracts it again.
    """
    read = {namer.before(entry) for entry in reads}
    written, cleared = set[str](), set[str]()
    for entry, weight in writes.items():
        old = namer.before(entry)
        if old in namer.cleared and reads.get(entry, Fraction(0)) * weight < 0:
            cleared.add(old)
        else:
            written.add(namer.after(entry))
    read = set() if read == cleared and not written else read
    return frozenset(read), frozenset(written), frozenset(cleared)


def _find_alive(
    namer: _Namer, strokes: list[Stroke], before: set[str]
) -> tuple[dict[str, tuple[int | None, int | None]], set[str]]:
    """Find the strokes at which temporaries begin and end.

    Return also the temporaries that stay alive.
    """
    alive: dict[str, tuple[int | None, int | None]] = {}
    fresh = {namer.after(entry) for entry in namer.block.new_labels}
    for name in sorted(namer.temporaries):
        wrote, cleared = (
            [i for i, stroke in enumerate(strokes) if role in stroke.marks.get(name, ())]
            for role in ("write", "clear")
        )
        if name not in before and not wrote:
            continue
        begins = None if name in before else wrote[0]
        ends = cleared[-1] if cleared and name not in fresh else None
        alive[name] = begins, ends
    return alive, {name for name, (_, ends) in alive.items() if ends is None}


def _describe_size(block: PlannedBlock) -> list[str]:
    heads = f"{len(block.heads)} {block.kind} head{'s' if len(block.heads) > 1 else ''}"
    sizes = [f"{heads}, {block.mask}, {block.normalisation}"] if block.heads else []
    units = f"{block.hidden:,} hidden unit{'s' if block.hidden > 1 else ''}"
    return [*sizes, *([units] if block.hidden else [])]


def _list_lines(block: PlannedBlock, definition: Definition) -> list[str]:
    """List the statements that a block runs with their numbers, those of helpers after their
    callers.
    """
    home = definition.step.__code__.co_filename
    groups: dict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for node in block.nodes:
        if not node.calls:
            continue
        *inner, outer = dict.fromkeys(map(_find, node.calls))
        below = tuple(f"↳ {_number(home, *each)}" for each in reversed(inner))
        groups[below].setdefault(_number(home, *outer), outer[1].number)
    for line in block.assigned:
        if line.number:
            path, statement = _find_assigned(home, line)
            groups[()].setdefault(_number(home, path, statement), statement.number)
    ordered = sorted(groups.items(), key=lambda item: min(item[1].values()))
    known = {line for below in groups for line in below}
    lines = [
        line
        for below, outers in ordered
        for line in [*sorted(outers, key=lambda each: outers[each]), *below]
        if f"↳ {line}" not in known
    ]
    return list(dict.fromkeys(lines))


def _find(call: Call) -> tuple[str, Statement]:
    return call.path, find_statement(call.path, call.first)


def _find_assigned(home: str, line: Line) -> tuple[str, Statement]:
    if Path(line.file).name == Path(home).name:
        return home, find_statement(home, line.number)
    return line.file, Statement(line.number, line.text)


def _number(home: str, path: str, statement: Statement) -> str:
    """Format a statement after its line number, and its file if it is not in the program's own
    file.
    """
    place = "" if path == home else f"{Path(path).name} "
    return f"{place}{statement.number}: {statement.text}"


def _describe_readout(construction: ProgramConstruction) -> Column:
    """Describe an answer that needs no block: it is read from the stream, or computed outside."""
    definition, answer = construction.definition, construction.compiled.answer
    if answer is None:
        assert definition.readout_part is not None
        lines = [f"{each.number}: {each.text}" for each in find_returns(definition.readout_part)]
        return Column(["read-out", "outside, of the last stream"], lines, [], {})
    marks: Marks = {entry[0]: {"read"} for row in answer.rows for entry in row}
    lines = [f"{each.number}: {each.text}" for each in find_returns(definition.answer_part)]
    strokes = [Stroke("answer", 0, marks)] if marks else []
    return Column(
        ["read-out", "no block"], lines or [_describe_own_answer(definition)], strokes, {}
    )


def _describe_own_answer(definition: Definition) -> str:
    text = (definition.answer_part.__doc__ or "").rstrip(".") if definition.answer_part else ""
    return f"the prompt's own answer: {text}"
