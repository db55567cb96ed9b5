"""The definition of a program: its functions, registers and numbers as the author wrote them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import keyword
import textwrap
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

from innerloop.errors import InputError
from innerloop.language.errors import CannotCompile, Line, find_definition
from innerloop.language.machine import Function
from innerloop.language.prompts.base import Prompt
from innerloop.language.recording import Recordings
from innerloop.language.refusals import describe_kind
from innerloop.language.types import RESERVED, Count, Declaration, Matrices, Number, Register


@dataclass(eq=False)
class Definition:
    """A program: `step` changes registers; the other functions are optional.

    first_part      computes states before the first step
    answer_part     computes the answer of a token, in the transformer
    readout_part    computes the answer from the output stream, outside of the transformer

    `answer_dims` are the dimensions that an answer must have, or None if the class reads the
    answer.
    """

    step: Function
    prompt: Prompt
    registers: dict[str, Register]
    numbers: dict[str, Number | Count | Matrices]
    first_part: Function | None = None
    answer_part: Function | None = None
    readout_part: Function | None = None
    answer_dims: tuple[str, ...] | None = None
    recordings: Recordings = field(default_factory=Recordings)

    def init(self, function: Function) -> Function:
        """Decorate the function that computes the states before the first step."""
        return self._extend("first_part", function)

    def answer(self, function: Function) -> Function:
        """Decorate the function of a token's answer, which the transformer computes."""
        return self._extend("answer_part", function)

    def readout(self, function: Function) -> Function:
        """Decorate the function that computes the answer outside, from the output stream."""
        self.answer_part = None
        return self._extend("readout_part", function)

    def _extend(self, part: str, function: Function) -> Function:
        check_token(function)
        setattr(self, part, function)
        add_numbers(self, function)
        return function

    @property
    def name(self) -> str:
        return self.step.__name__

    @property
    def answer_name(self) -> str:
        """The name of the answer's register: that of the answer function, if the author named
        it.
        """
        name = getattr(self.answer_part, "__name__", "_")
        return name if name.isidentifier() and name.strip("_") else "answer"

    @property
    def states(self) -> list[str]:
        return [name for name, register in self.registers.items() if register.state]

    @cached_property
    def state_type(self) -> Any:
        """A named tuple type with one field per state."""
        name = self.name if self.name.isidentifier() else "program"
        return namedtuple(f"{name}_state", self.states)

    @property
    def number_names(self) -> list[str]:
        """The names of its real numbers and matrices; integers are fixed, like sizes."""
        return [name for name, part in self.numbers.items() if not isinstance(part, Count)]

    @property
    def functions(self) -> list[Function]:
        parts = (self.step, self.first_part, self.answer_part, self.readout_part)
        return [function for function in parts if function is not None]

    @property
    def needs_n(self) -> bool:
        """Whether a function has an argument n; the weights are then for prompts of that n only."""
        return any("n" in list_arguments(function) for function in self.functions)

    def find_shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every register for these sizes."""
        for name, register in self.registers.items():
            for dim in register.dims:
                if isinstance(dim, str) and dim not in sizes:
                    raise CannotCompile(
                        f"{name} has a dimension {dim!r}, but the sizes are {', '.join(sizes)}: "
                        "use one of these, or a whole number",
                        find_definition(self.step),
                    )
        return {name: register.find_shape(sizes) for name, register in self.registers.items()}

    def bind(
        self, function: Function, k: int, sizes: Mapping[str, int], numbers: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments of a function by name: the step's number, sizes, and numbers."""
        known = {"k": k, **sizes, **numbers}
        return {name: known[name] for name in list_arguments(function)}

    @property
    def text(self) -> str:
        """The source text of its functions."""
        return "\n".join(_get_text(function) for function in self.functions)

    @property
    def digest(self) -> str:
        """A hash of the program's code that ignores comments, docstrings and spaces."""
        parts = [repr(sorted((name, repr(r)) for name, r in self.registers.items()))]
        parts += [ast.dump(_parse(_get_text(function))) for function in self.functions]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def list_arguments(function: Function) -> list[str]:
    """List the names of the arguments of a function of a program, without the token."""
    return list(inspect.signature(function).parameters)[1:]


def check_token(function: Any) -> None:
    """Raise an error unless the argument is a function whose first parameter is a token."""
    if not callable(function) or not hasattr(function, "__code__"):
        raise InputError(f"a program is a function of me, got a {type(function).__name__}")
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.default is not first.empty or first.kind is first.KEYWORD_ONLY:
        raise CannotCompile(
            "the first argument is the token, whose registers are read and assigned: write "
            f"def {function.__name__}(me, …)",
            find_definition(function),
        )


def make_definition(step: Function, prompt: Prompt, declared: Mapping[str, Any]) -> Definition:
    """Make a definition from a step and its declarations; numbers may be undeclared."""
    line = find_definition(step)
    for name, part in declared.items():
        if name in RESERVED or name.startswith("_"):
            raise CannotCompile(f"{name!r} is the compiler's name: choose another", line)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise CannotCompile(f"{name!r} cannot be a name in Python: choose another", line)
        if not isinstance(part, Declaration):
            raise CannotCompile(
                f"{name} must be Data, State, Number, Bound, Count or Matrices, got "
                f"{describe_kind(part)}",
                line,
            )
    registers = {n: part for n, part in declared.items() if isinstance(part, Register)}
    numbers = {n: part for n, part in declared.items() if n not in registers}
    for name, part in numbers.items():
        if not isinstance(part, Matrices):
            _check_default(name, part.default, line)
    definition = Definition(step, prompt, registers, numbers)
    prompt.check_registers(str(line) if line.file else definition.name, registers)
    if not definition.states:
        raise CannotCompile(
            f"{definition.name} has no State: a step must have something to change", line
        )
    add_numbers(definition, step)
    return definition


def add_numbers(definition: Definition, function: Function) -> list[str]:
    """Declare the undeclared arguments of a function as numbers, and return their names."""
    known = {"k", "own", *definition.prompt.size_names, *definition.numbers}
    names = []
    for name, argument in list(inspect.signature(function).parameters.items())[1:]:
        if name in known:
            continue
        default = argument.default if argument.default is not inspect.Parameter.empty else None
        _check_default(name, default, find_definition(function))
        definition.numbers[name] = Number(default)
        names.append(name)
    return names


def _check_default(name: str, default: Any, line: Line) -> None:
    """Raise an error if a default is not a number, for example a list that all calls would
    share.
    """
    if default is not None and (not isinstance(default, Real) or isinstance(default, bool)):
        raise CannotCompile(
            f"the default of {name} must be a number, got {describe_kind(default)}: arguments of a "
            "program after the token are its numbers",
            line,
        )


def _get_text(function: Function) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):  # made without a file
        return f"{function.__name__}: no source"


def _parse(text: str) -> ast.AST:
    """Parse the functions' text and drop docstrings.

    Text that cannot be parsed is kept as a constant.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ast.Constant(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree
