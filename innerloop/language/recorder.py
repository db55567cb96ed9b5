"""The recorder: it stores the instructions of one function of a program while the function runs.

Two uses of tokens raise an error. A sum over one token inside of a sum over another must not read
both tokens, because a head sums over one token. A token must not be used outside of its sum.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from innerloop.language import shapes
from innerloop.language.errors import CannotCompile
from innerloop.language.knots import Knots
from innerloop.language.machine import Function, check_function
from innerloop.language.naming import PlaceFinder
from innerloop.language.record import Body, Instruction, Record, Slot, compute, list_releases
from innerloop.language.recorded_values import Recorded, RecordedNumber, Token, is_other
from innerloop.language.refusals import describe_kind
from innerloop.language.types import Register, to_fraction
from innerloop.language.values import Matrix, Value

MASKS = ("context", "all", "causal")
MAX_OPERATIONS = 100_000
"""The largest number of operations that a function of a program may record."""
NESTED = (
    "a sum over one token, inside of a sum over another, reads both: a head sums over one. Compute "
    "the inner sum in every token first, on a line before, with me in place of the outer token: "
    "me.p = mean(lambda i: …); then read j.p in the outer sum"
)
ESCAPED = "a token of a sum, or a value of it, is used after that sum: use it inside of it alone"
FOREIGN = "a token or a value of another run of the program is used: keep none outside of it"


class Recorder:
    """Stores the instructions of one function of a program while the function runs."""

    def __init__(
        self,
        registers: Mapping[str, Register],
        shapes_of: Mapping[str, shapes.Shape],
        numbers: Mapping[str, Any],
    ) -> None:
        self.registers = registers
        self.shapes = dict(shapes_of)
        self.numbers = numbers
        self.used_values = False
        self.closed = False
        self.failure: Exception | None = None
        self.count = 0
        self.open: list[Token] = []
        self._lists: list[list[Instruction]] = [[]]
        self._of_numbers: dict[int, Instruction] = {}
        self._places = PlaceFinder()

    def add(self, operation: str, *arguments: Any, is_number: bool = False) -> Slot:
        """Add an instruction; return the slot of its result."""
        frozen = tuple(map(self.freeze, arguments))
        self.count += 1
        if self.count > MAX_OPERATIONS:
            raise CannotCompile(
                f"more than {MAX_OPERATIONS:,} operations: a step is recorded operation by "
                "operation, and compiled to blocks; let it be one step of the loop, and set steps"
            )
        made = Instruction(self.count, operation, frozen, self._places.find())
        self._lists[-1].append(made)
        if is_number:
            self._of_numbers[self.count] = made
        return Slot(self.count)

    def freeze(self, argument: Any) -> Any:
        """Return an argument in its stored form: slots for recorded values, rationals for
        numbers.
        """
        if isinstance(argument, Recorded):
            self.check_usable(argument)
            return argument.slot
        if isinstance(argument, list | tuple) and not isinstance(argument, Slot):
            return tuple(map(self.freeze, argument))
        unchanged = (Slot, Body, Knots, Matrix, str, int, type(None))
        return argument if isinstance(argument, unchanged) else to_fraction(argument)

    def check_usable(self, value: Recorded) -> None:
        """Raise an error for a value of another recording, or of a token outside of its sum."""
        if value.recorder is not self or self.closed:
            raise CannotCompile(FOREIGN)
        if value.token is not None:
            self.check_open(value.token)

    def check_open(self, token: Token) -> None:
        """Raise an error if a token is not that of the innermost sum."""
        if not self.open or token is not self.open[-1]:
            is_outer = any(token is each for each in self.open)
            raise CannotCompile(NESTED if is_outer else ESCAPED)

    def make(self, operation: str, *arguments: Any, shape: shapes.Shape) -> Recorded:
        """Add an instruction whose result is a value.

        The value belongs to the token that the arguments read, if there is one.
        """
        slot = self.add(operation, *arguments)
        return Recorded(self, slot, shape, self._find_token(arguments))

    def _find_token(self, arguments: Sequence[Any]) -> Token | None:
        for each in arguments:
            token = each.token if isinstance(each, Recorded) else None
            if isinstance(each, list | tuple) and not isinstance(each, Slot):
                token = self._find_token(each)
            if token is not None:
                return token
        return None

    def read(self, token: Token, name: str) -> Recorded:
        """Read a register of this token or of the token of the innermost sum."""
        self._check_register(name)
        if self.closed:
            raise CannotCompile(FOREIGN)
        other = token if is_other(token) else None
        if other is not None:
            self.check_open(other)
        slot = self.add("read", name, "me" if other is None else "j")
        return Recorded(self, slot, self.shapes[name], other)

    def _check_register(self, name: str) -> None:
        if name not in self.shapes:
            near = difflib.get_close_matches(name, self.shapes, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise CannotCompile(f"no register {name!r}{hint} (there are {', '.join(self.shapes)})")

    def write(self, name: str, value: Any) -> None:
        """Assign a register, or a temporary, of this token."""
        register = self.registers.get(name)
        if register is not None and not register.state:
            raise CannotCompile(f"{name} is Data, which no step changes: declare it State")
        if value is None or isinstance(value, list | tuple):
            raise CannotCompile(
                f"me.{name} is assigned {describe_kind(value)}: assign a value of a token, "
                "stack([…]) of some, or one number for every entry"
            )
        if isinstance(value, Recorded) and value.token is not None:
            raise CannotCompile(
                f"me.{name} would depend on one other token: sum over j with mean, total or softmax"
            )
        if self.open:
            raise CannotCompile(
                f"me.{name} is assigned inside of a sum, once for each token: assign it before"
            )
        if not isinstance(value, Recorded):
            value = to_fraction(value)
        shape = value.shape if isinstance(value, Recorded) else ()
        expected = self.shapes[name] if register is not None else shape
        if shape not in ((), expected):
            raise CannotCompile(f"{name} has shape {expected}, its new value {shape}")
        self.add("write", name, value)
        self.shapes[name] = expected

    def attend(
        self,
        name: str,
        summand: Function,
        over: str,
        average: bool,
        where: Function | None = None,
        reach: Any = None,
        mark: str | None = None,
        gap: Any = 1,
    ) -> Recorded:
        """Record a sum over other tokens."""
        self._check_sum(name, over, [summand, where])
        body, shape = self.record_body(summand)
        flag, _ = (None, ()) if where is None else self.record_body(where)
        if mark is not None:
            self._check_register(mark)
        if where is not None and reach is None:
            raise CannotCompile("`where` needs reach, a bound on |score|, to silence other tokens")
        return self.make("attend", body, over, average, flag, reach, mark, gap, shape=shape)

    def attend_softmax(
        self, score: Function, value: Function, over: str, where: Function | None, reach: Any
    ) -> Recorded:
        """Record an average over other tokens with softmax weights."""
        self._check_sum("softmax", over, [score, value, where])
        scores, _ = self.record_body(score)
        values, shape = self.record_body(value)
        flag, _ = (None, ()) if where is None else self.record_body(where)
        return self.make("attend_softmax", scores, values, over, flag, reach, shape=shape)

    def _check_sum(self, name: str, over: str, functions: Sequence[Function | None]) -> None:
        if over not in MASKS:
            raise CannotCompile(f"over must be one of {', '.join(MASKS)}, got {over!r}")
        for function in functions:
            if function is not None:
                check_function(function, name)

    def record_body(self, function: Function) -> tuple[Body, shapes.Shape]:
        """Record a function of another token; return its instructions and the result's shape."""
        token = Token(self, other=True)
        self.open.append(token)
        self._lists.append([])
        try:
            value = function(token)
            result = self.freeze(value)
        except Exception as error:
            self.failure = self.failure or error
            raise
        finally:
            self.open.pop()
            instructions = self._lists.pop()
        shape = value.shape if isinstance(value, Recorded) else ()
        return Body(instructions, result), shape

    def evaluate(self, number: RecordedNumber) -> Any:
        """Return the value of a number: a rational, or a `Value` with one number for each
        prompt.
        """
        self.check_usable(number)
        self.used_values = True

        def find(argument: Any) -> Any:
            if not isinstance(argument, Slot):
                return argument
            made = self._of_numbers[argument.number]
            if made.operation == "number":
                return _as_rational(self.numbers[made.arguments[0]])
            return compute(made.operation, None, [find(each) for each in made.arguments])

        return find(number.slot)

    def finish(self, returned: Any) -> Record:
        """Return the record of the function, with this result; None if the result does not
        matter.
        """
        if self.failure is not None:  # the function may have caught it
            raise self.failure
        result = self.freeze(returned)
        (instructions,) = self._lists
        releases = list_releases(instructions, result)
        return Record(instructions, result, self.used_values, releases)


def _as_rational(number: Any) -> Any:
    """Return a tensor of one number as a rational; return a tensor of several as a value."""
    if isinstance(number, Value) and math.prod(number.array.shape) == 1:
        return to_fraction(float(number.array.detach().reshape(-1)[0]))
    return number if isinstance(number, Value) else to_fraction(number)


RECORDERS: ContextVar[tuple[Recorder, ...]] = ContextVar("recorders", default=())


def get_recorder() -> Recorder:
    """Return the recorder of the program's function that is running."""
    recorders = RECORDERS.get()
    if not recorders:
        raise CannotCompile("this is for use inside of a program: see innerloop.language")
    return recorders[-1]
