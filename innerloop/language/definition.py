"""What an author wrote: the functions of a program, its registers and its numbers."""

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
    answer_part     computes what a token answers, in the transformer
    readout_part    computes it from the output stream, outside of the transformer

    `answer_dims` are the dimensions that an answer must have, or None where a class reads it.
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
        """Declare, as a decorator, how states are computed before the first step."""
        return self._extend("first_part", function)

    def answer(self, function: Function) -> Function:
        """Declare, as a decorator, what a token answers, computed in the transformer."""
        return self._extend("answer_part", function)

    def readout(self, function: Function) -> Function:
        """Declare, as a decorator, the answer as computed from the output stream, outside."""
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
        """The register of the answer: the name of its function, if it has one."""
        name = getattr(self.answer_part, "__name__", "_")
        return name if name.isidentifier() and name.strip("_") else "answer"

    @property
    def states(self) -> list[str]:
        return [name for name, register in self.registers.items() if register.state]

    @cached_property
    def state_type(self) -> Any:
        """A named tuple of the states."""
        name = self.name if self.name.isidentifier() else "program"
        return namedtuple(f"{name}_state", self.states)

    @property
    def number_names(self) -> list[str]:
        """Names of its numbers and matrices; whole numbers are as fixed as sizes."""
        return [name for name, part in self.numbers.items() if not isinstance(part, Count)]

    @property
    def functions(self) -> list[Function]:
        parts = (self.step, self.first_part, self.answer_part, self.readout_part)
        return [function for function in parts if function is not None]

    @property
    def needs_n(self) -> bool:
        """Whether a function asks for n: then weights are for prompts of that n."""
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
        """Return the arguments of a function: the step's number, sizes, and numbers by name."""
        known = {"k": k, **sizes, **numbers}
        return {name: known[name] for name in list_arguments(function)}

    @property
    def text(self) -> str:
        """The source text of its functions."""
        return "\n".join(_get_text(function) for function in self.functions)

    @property
    def digest(self) -> str:
        """A hash of the program's code; comments, docstrings and spaces do not count."""
        parts = [repr(sorted((name, repr(r)) for name, r in self.registers.items()))]
        parts += [ast.dump(_parse(_get_text(function))) for function in self.functions]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def list_arguments(function: Function) -> list[str]:
    """List the arguments of a function of a program, without the token."""
    return list(inspect.signature(function).parameters)[1:]


def check_token(function: Any) -> None:
    """Refuse anything but a function whose first argument is a token."""
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
    """Make a definition from a step and what is declared about it; numbers may be undeclared."""
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
    """Declare the arguments of a function that nobody has declared; return their names."""
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
    """Refuse a default that is not a number, such as a list that calls would share."""
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
    """Parse the text of functions without docstrings; text that does not parse stays a constant."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ast.Constant(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree
