"""Recording: run a function of a program on values that record the operations on them.

The function runs twice, and once more whenever it is compiled again. If the computations differ, an
error is raised. The compiler and the interpreter both replay the record, so that later changes of
the function's behaviour have no effect.
"""

from __future__ import annotations

import numbers
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from innerloop.errors import InputError
from innerloop.language.deadline import TimeLimitExceeded, call_within
from innerloop.language.errors import (
    CannotCompile,
    explain_failure,
    find_definition,
    find_failing_line,
)
from innerloop.language.machine import Function
from innerloop.language.record import Record, find_difference
from innerloop.language.recorded_values import RecordedMatrix, RecordedNumber, Token, is_value
from innerloop.language.recorder import RECORDERS, Recorder
from innerloop.language.refusals import describe_kind
from innerloop.language.shapes import Shape
from innerloop.language.types import Register
from innerloop.language.values import Matrix, Value

if TYPE_CHECKING:
    from innerloop.language.definition import Definition

Part = Literal["step", "answer", "readout"]
"""The kind of a function: it changes registers, or it returns an answer."""
MAX_RECORDS = 16
"""The number of records that are stored for a function that branches on numbers: the latest
ones.
"""
MAX_SECONDS = 30.0
"""The time limit, in seconds, for recording a function once."""
CHANGED = (
    "the program computes something else when it is run again: random numbers, and variables "
    "outside of it that change, cannot be weights. Use numbers of the program, one per step if "
    "they differ"
)


def run_program(recorder: Recorder, function: Function, arguments: Mapping[str, Any]) -> Any:
    """Run a function of a program for the token `me`.

    The search for its frames ends at this frame.
    """
    return function(Token(recorder), **arguments)


class ProgramChanged(CannotCompile):
    """A function of a program computed something else when it ran again."""


@dataclass(frozen=True)
class Recording:
    """A function of a program with the arguments that it is recorded with.

    function   the function of `me` and of further arguments
    arguments  these arguments
    names      the arguments that are numbers and matrices of the program
    registers  the declared registers
    shapes     the shapes of the registers
    part       the kind of function: the result of a step does not matter, that of an answer does
    answer     the dimensions of an answer; None for any
    """

    function: Function
    arguments: Mapping[str, Any]
    names: Collection[str]
    registers: Mapping[str, Register]
    shapes: Mapping[str, Shape]
    part: Part
    answer: tuple[str, ...] | None

    def run(self) -> Record:
        """Run the function and return the record of its computations."""
        recorder = Recorder(self.registers, self.shapes, self.arguments)
        running = RECORDERS.set((*RECORDERS.get(), recorder))
        try:
            arguments = {
                name: _wrap_number(recorder, name, value) if name in self.names else value
                for name, value in self.arguments.items()
            }
            returned = run_program(recorder, self.function, arguments)
            self._check_answer(returned)
            return recorder.finish(None if self.part == "step" else returned)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise explain_failure(error, self.function) from error
        finally:
            recorder.closed = True
            RECORDERS.reset(running)

    def _check_answer(self, returned: Any) -> None:
        if self.part == "step":
            return
        is_constant = isinstance(returned, RecordedNumber | numbers.Real)
        if not is_value(returned) and not (self.part == "readout" and is_constant):
            raise CannotCompile(
                f"the answer must be a value of this token, got {describe_kind(returned)}: return "
                "it",
                find_definition(self.function),
            )
        shape = () if is_constant else returned.shape
        if self.answer is not None and len(shape) != len(self.answer):
            expected = f"of dimensions ({', '.join(self.answer)})" if self.answer else "one number"
            raise CannotCompile(
                f"the answer has shape {shape}, but answers to this prompt are {expected}: use "
                "x[i] or dot(a, b) for one number, and stack([…]) for several",
                find_definition(self.function),
            )


def record_function(recording: Recording, earlier: tuple[Recording, Record] | None) -> Record:
    """Record a function twice, and raise an error if the computations differ.

    If there is an `earlier` recording, for example for other sizes, that is repeated too.
    """
    first = _run_within(recording)
    repeat_recording(recording, first)
    if earlier is not None:
        repeat_recording(*earlier)
    return first


def repeat_recording(recording: Recording, record: Record) -> None:
    """Run a function again, and raise an error if the computations differ from the record."""
    if (line := find_difference(record, _run_within(recording))) is not None:
        raise ProgramChanged(CHANGED, line)


def _run_within(recording: Recording) -> Record:
    """Run a function to record it; raise an error if it exceeds the time limit."""
    try:
        return call_within(MAX_SECONDS, recording.run)
    except TimeLimitExceeded as error:
        raise CannotCompile(
            f"this was still running after {MAX_SECONDS:g} seconds: a function of a program is run "
            "to record what it computes, so each loop in it has to end",
            find_failing_line(error, recording.function),
        ) from None


def _wrap_number(recorder: Recorder, name: str, value: Any) -> Any:
    """Return a number of the program as a recorded number; return anything else unchanged."""
    if isinstance(value, Matrix):
        shape = tuple(value.entries.shape[-2:])
        return RecordedMatrix(recorder, recorder.add("number", name), shape)
    if is_number(value):
        return RecordedNumber(recorder, recorder.add("number", name, is_number=True))
    return value


def is_number(value: Any) -> bool:
    """Return whether a value is a number of the program: a real one, or one for each prompt."""
    return isinstance(value, Value | numbers.Real) and not isinstance(value, bool)


class Recordings:
    """Returns the record of a function, and makes it if it does not exist yet.

    A record is valid for all numbers of the program, unless the function branched on them.
    """

    def __init__(self) -> None:
        self._records: dict[Any, list[tuple[Any, Recording, Record]]] = defaultdict(list)
        self._first: dict[Function, tuple[Recording, Record]] = {}

    def find(
        self,
        definition: Definition,
        function: Function,
        k: int,
        sizes: Mapping[str, int],
        numbers: Mapping[str, Any],
        repeat: bool = False,
    ) -> Record:
        """Return the record of a function, for step k of a problem of these sizes.

        With `repeat`, a function that was recorded before is run again, and an error is raised if
        its computations have changed.
        """
        arguments = definition.bind(function, k, sizes, numbers)
        known = self._records[function, _describe(definition, arguments, sizes)]
        for values, recording, record in known:
            if values is None or values == _list_values(definition, arguments):
                if repeat:
                    repeat_recording(recording, record)
                return record
        shapes = definition.find_shapes(sizes)
        names, part = definition.number_names, _name_part(definition, function)
        answer = definition.answer_dims
        recording = Recording(
            function, arguments, names, definition.registers, shapes, part, answer
        )
        record = record_function(recording, self._first.get(function))
        self._first.setdefault(function, (recording, record))
        values = _list_values(definition, arguments) if record.used_values else None
        known.append((values, recording, record))
        del known[:-MAX_RECORDS]
        return record


def _name_part(definition: Definition, function: Function) -> Part:
    if function is definition.answer_part:
        return "answer"
    return "readout" if function is definition.readout_part else "step"


def _describe(
    definition: Definition, arguments: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[Any, ...]:
    """Return everything that a record depends on except the values of numbers, as a key."""
    letters = {dim for register in definition.registers.values() for dim in register.dims}
    used = [(name, size) for name, size in sizes.items() if name in letters]
    kinds: list[tuple[str, Any]] = []
    for name, value in arguments.items():
        if isinstance(value, Matrix):
            kinds.append((name, tuple(value.entries.shape[-2:])))
        elif name != "own" and not (name in definition.number_names and is_number(value)):
            kinds.append((name, value if isinstance(value, Hashable) else repr(value)))
    return tuple(used), tuple(kinds)


def _list_values(definition: Definition, arguments: Mapping[str, Any]) -> list[Any]:
    """List the values of the program's numbers, as floats."""
    values: list[Any] = []
    for name, value in arguments.items():
        if isinstance(value, Value):
            values.append((name, value.array.detach().reshape(-1).tolist()))
        elif name in definition.number_names and is_number(value):
            values.append((name, [float(value)]))
    return values
