"""Records of a program's functions: their computations as instructions, each with its place.

A function of a program is run once, on values that record the operations on them (recording.py).
The tracer and the interpreter both replay the record, on forms and on arrays. Neither runs the
author's code, so that no hidden state of that code can make them differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from innerloop.language.errors import REPLAYED, CannotCompile, Line, Place
from innerloop.language.knots import Knots
from innerloop.language.machine import Machine
from innerloop.language.values import Matrix


class Slot(NamedTuple):
    """A reference to the result of an earlier instruction, by its number."""

    number: int


class Instruction(NamedTuple):
    """One operation: its number, its name in `OPERATIONS`, its arguments, and its place in the
    program.

    Arguments are slots, rational numbers, names, bodies of sums, or tuples of these.
    """

    number: int
    operation: str
    arguments: tuple[Any, ...]
    place: Place


@dataclass(frozen=True, eq=False)
class Body:
    """A function of another token inside of a sum: its instructions, and the result that it
    returns.
    """

    instructions: list[Instruction]
    result: Any


@dataclass(frozen=True, eq=False)
class Record:
    """The computations of a function of a program, and its result.

    used_values  whether the function branched on the program's numbers, or converted them; the
                 record is then valid for these numbers only
    releases     by instruction, the results that no later instruction reads
    """

    instructions: list[Instruction]
    result: Any
    used_values: bool
    releases: dict[int, list[int]]

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        return self  # nothing in it is ever changed


OPERATIONS: dict[str, Callable[..., Any]] = {
    "number": lambda machine, name: machine.numbers[name],
    "add": lambda _, a, b: a + b,
    "subtract": lambda _, a, b: a - b,
    "multiply": lambda _, a, b: a * b,
    "divide": lambda _, a, b: a / b,
    "power": lambda _, a, b: a**b,
    "negate": lambda _, a: -a,
    "magnitude": lambda _, a: abs(a),
    "product": lambda _, operation, a, b: a.contract(b, operation),
    "apply_matrix": lambda _, matrix, vector: matrix @ vector,
    "transpose_matrix": lambda _, matrix: matrix.T,
    "entry": lambda _, a, index: a[index],
    "transpose": lambda _, a: a.transpose(),
    "sum_entries": lambda _, a: a.sum_entries(),
    "stack": lambda _, rows: rows[0].stack(rows),
    "rectify": lambda _, a: a.rectify(),
    "sum_hinges": lambda _, a, *net: a.sum_hinges(*net),
    "read": lambda machine, *values: machine.read(*values),
    "write": lambda machine, *values: machine.write(*values),
    "attend": lambda machine, *values: machine.attend(*values),
    "attend_softmax": lambda machine, *values: machine.attend_softmax(*values),
    "interpolate": lambda machine, *values: machine.interpolate(*values),
    "check_range": lambda machine, *values: machine.check_range(*values),
    "check_values": lambda machine, *values: machine.check_values(*values),
    "check_number": lambda machine, *values: machine.check_number(*values),
}
"""The function that performs each operation on the values of a machine."""


def replay(record: Record, machine: Machine, numbers: Mapping[str, Any]) -> Any:
    """Run a record on a machine, and return the function's result as a value of the machine."""
    machine.numbers = numbers
    return _Replay(machine, record.releases).run(record)


class _Replay:
    """Runs instructions; those of a sum's body run once, when the machine calls it."""

    def __init__(self, machine: Machine, releases: Mapping[int, list[int]]) -> None:
        self.machine, self.releases = machine, releases
        self.results: dict[int, Any] = {}

    def run(self, part: Record | Body) -> Any:
        before = REPLAYED.set(None)
        try:
            for number, operation, arguments, place in part.instructions:
                REPLAYED.set(place)
                values = [self.resolve(argument) for argument in arguments]
                self.results[number] = compute(operation, self.machine, values)
                for released in self.releases.get(number, ()):
                    del self.results[released]
        finally:
            REPLAYED.reset(before)
        return self.resolve(part.result)

    def resolve(self, argument: Any) -> Any:
        """Return the value of an argument; a body becomes a function that computes its result."""
        if isinstance(argument, Slot):
            return self.results[argument.number]
        if isinstance(argument, Body):
            return lambda: self.run(argument)
        if isinstance(argument, tuple):
            return [self.resolve(each) for each in argument]
        return argument


def list_releases(instructions: Sequence[Instruction], result: Any) -> dict[int, list[int]]:
    """List, by instruction, the results that neither a later instruction nor the caller reads."""
    last: dict[int, int] = {}

    def note(argument: Any, number: int) -> None:
        if isinstance(argument, Slot):
            last[argument.number] = number
        elif isinstance(argument, tuple):
            for each in argument:
                note(each, number)
        elif isinstance(argument, Body):
            walk(argument.instructions)
            note(argument.result, number)

    def walk(part: Sequence[Instruction]) -> None:
        for each in part:
            last[each.number] = each.number
            for argument in each.arguments:
                note(argument, each.number)

    walk(instructions)
    if isinstance(result, Slot):
        del last[result.number]
    releases: dict[int, list[int]] = defaultdict(list)
    for number, end in last.items():
        releases[end].append(number)
    return dict(releases)


def compute(operation: str, machine: Any, values: Sequence[Any]) -> Any:
    """Perform one operation; report overflow and division by 0 as errors of the program."""
    try:
        return OPERATIONS[operation](machine, *values)
    except ZeroDivisionError:
        raise CannotCompile("a division by a number that is 0 with these parameters") from None
    except OverflowError:
        raise CannotCompile("a number is too large for float64 (about 1.8e308 at most)") from None


def find_difference(first: Record, second: Record) -> Line | None:
    """Return the line at which two records of one function differ, or None if they are equal."""
    pairs = list(zip(first.instructions, second.instructions, strict=False))
    for one, other in pairs:
        if not _are_equal(one[:3], other[:3]):
            return one.place.line
    if len(first.instructions) == len(second.instructions):
        if _are_equal(first.result, second.result):
            return None
        return pairs[-1][0].place.line if pairs else Line("", 0, "")
    longer = max(first.instructions, second.instructions, key=len)
    return longer[len(pairs)].place.line


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether arguments of instructions are equal; functions are compared at their knots."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Body):
        return _are_equal(
            [*(each[:3] for each in one.instructions), one.result],
            [*(each[:3] for each in other.instructions), other.result],
        )
    if isinstance(one, Knots):
        return one.net == other.net
    if isinstance(one, Matrix):
        return np.array_equal(np.asarray(one.entries), np.asarray(other.entries))
    if isinstance(one, tuple | list) and not isinstance(one, Slot):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return one == other
