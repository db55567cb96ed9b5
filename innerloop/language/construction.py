"""Programs as constructions: all declarations of a construction are derived from the program.

`program` turns a step into a class. The parameters of the class are the prompt's sizes and the
program's numbers, its algorithm is the interpreter, and its blocks are compiled. `build`, `show`,
`verify` and `identify` accept it like any other construction. A user-defined class with `definition
= define(…)` may declare more: another algorithm (`represent` then writes the states to registers),
limits, a bound, and parameters. Its attributes are the numbers of its program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.errors import FileError, InputError, OutOfRangeError
from innerloop.language.compiler import Compiled, compile_program
from innerloop.language.definition import Definition, list_arguments
from innerloop.language.derived import (
    CountedCost,
    Own,
    ReferenceOf,
    Repeats,
    declare_fields,
    refuse_own,
)
from innerloop.language.emission import emit_blocks
from innerloop.language.forms import ONE
from innerloop.language.interpreter import Interpreter
from innerloop.language.machine import Function
from innerloop.language.matrices import make_matrices
from innerloop.language.plan import Plan
from innerloop.language.prompts.base import make_zero_draw
from innerloop.language.ranges import RangeCheck
from innerloop.language.record import replay
from innerloop.language.recording import Recordings
from innerloop.language.reference import Reference
from innerloop.language.target import Peepholes, Target
from innerloop.language.types import Count, Matrices, Number, to_fraction
from innerloop.language.values import Matrix, Value
from innerloop.transformer import Block, Layout

EXACT_SIZES = {
    **{"d": 3, "n": 4, "clusters": 2, "components": 1, "arms": 2, "steps": 2},
    "knots": 40,
}
"""Small values for the parameters that programs may have; tests and exact comparisons use them."""
Registers = dict[str, Tensor]
"""The contents of registers, each of shape (*batch, tokens, *shape)."""


class ProgramConstruction(Construction[Any, Any], ABC):
    """The construction of a program; `program` makes one subclass per program."""

    definition: ClassVar[Definition]
    required: ClassVar[tuple[str, ...]] = ("source", "cost", "definition")
    reference: ClassVar[Any] = ReferenceOf()
    cost: ClassVar[Any] = CountedCost()
    looped: ClassVar[Any] = Repeats()
    keeps_text: ClassVar[bool] = False
    """Whether files of its weights contain the program's text, because it is not part of a
    package.
    """
    attention: ClassVar[Any] = "linear"
    """The kind of attention that sums with linear scores become: linear or relu."""
    peepholes: ClassVar[Peepholes] = Peepholes()
    """The savings that the compiler makes.

    A class switches some off if its source prints more heads.
    """
    exact_sizes: ClassVar[dict[str, int]] = EXACT_SIZES
    """The sizes at which exact comparisons run by default."""
    takes: ClassVar[Literal["any", "up to", "only"] | None] = None
    """Which n it accepts besides the built one; if None, the weights and ranges decide."""
    within: ClassVar[dict[str, str]] = {}
    """The parameters that bound the entries of the prompt's registers: {"x": "bound"}."""
    usage_by_accept: ClassVar[bool] = False
    """Whether `accept` compares everything that ranges depend on, so that no stream leaves them."""
    _reference: ClassVar[type[Reference]]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, declared in self.definition.numbers.items():
            if isinstance(declared, Number) and not self._has_algorithm():
                self._check_number(name, declared)

    @classmethod
    def _has_algorithm(cls) -> bool:
        """Return whether the class has an algorithm of its own instead of the interpreter."""
        return cls.algorithm is not ProgramConstruction.algorithm

    @classmethod
    def takes_interpreter(cls) -> bool:
        """Whether its algorithm is the interpreter, that is `reference` with the program's
        numbers.
        """
        return not cls._has_algorithm()

    def _check_number(self, name: str, declared: Number) -> None:
        value = getattr(self, name)
        if value is None:
            raise InputError(f"{self.name} needs a value of {name}: give {name}=…, or a default")
        if isinstance(value, Tensor):
            low = -torch.inf if declared.least is None else declared.least
            high = torch.inf if declared.most is None else declared.most
            if value.shape != (self.steps,) or not bool(((value >= low) & (value <= high)).all()):
                raise InputError(
                    f"{name} must be one number or {self.steps}, each from {low} to {high}"
                )

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The sizes that it is built for, by the letters of the prompt."""

    @property
    def fixed_n(self) -> bool:
        """Whether the weights are for a single n, because the program uses n."""
        return self.definition.needs_n

    @property
    def repeats(self) -> bool:
        """Whether all steps are the same."""
        used = list_arguments(self.definition.step)
        values = [self._resolve(name) for name in self.definition.numbers if name in used]
        tensors = [value for value in values if isinstance(value, Tensor) and value.ndim]
        return "k" not in used and all(bool((t == t[:1]).all()) for t in tensors)

    def _resolve(self, name: str) -> Any:
        """Return a scalar unchanged, one number per step as a tensor, and matrices as (steps,
        d, d).

        In a class with an algorithm of its own, the numbers are those of that algorithm.
        """
        if self._has_algorithm():
            known = self.algorithm if hasattr(self.algorithm, name) else self
            return getattr(known, name)
        declared, value = self.definition.numbers[name], getattr(self, name)
        if isinstance(declared, Matrices):
            d = self.sizes["d"]
            return make_matrices(value, None, declared.scale, name, self.steps, d, declared.seed)
        return value

    def numbers_at(self, k: int) -> dict[str, Any]:
        """Return the numbers of step k as rationals, integers and matrices."""
        names = self.definition.numbers
        return {"own": Own(self), **{name: self.find_number(name, k) for name in names}}

    def find_number(self, name: str, k: int = 0) -> Any:
        """Return the value of a declared number in step k.

        Real numbers are returned as rationals.
        """
        value = self._resolve(name)
        if isinstance(value, Tensor) and value.ndim:
            value = value[k % len(value)]
        if isinstance(value, Tensor) and value.ndim == 2:
            value = Matrix(value.numpy())
        return to_fraction(value) if isinstance(value, float | Tensor) else value

    @cached_property
    def compiled(self) -> Compiled:
        """The compiled program."""
        return self.compile_for(self.target)

    @property
    def target(self) -> Target:
        """The kind of attention, token counts and savings that the program is compiled for."""
        counts = {"context": self._count_context()} if self.fixed_n and "n" in self.sizes else {}
        return Target(self.attention == "relu", counts, self.peepholes)

    def _count_context(self) -> int:
        """Return the number of context tokens for the built sizes.

        A prefix prompt has two per example.
        """
        prompt, n = self.definition.prompt, self.sizes["n"]
        if prompt.count_context(1 << 20, self.sizes) == n:  # whatever tokens there are
            return n
        problem = prompt.draw_problem(self.sizes, make_zero_draw())
        return self.context_length(problem)

    def compile_for(self, target: Target, ends: bool = False) -> Compiled:
        """Compile the program for another target; with `ends`, only its first and last step."""
        steps = range(1 if self.repeats else self.steps)
        chosen = sorted({steps[0], steps[-1]}) if ends else steps
        return compile_program(
            self.definition, self.sizes, self.numbers_at, chosen, target, self.recordings
        )

    @property
    def recordings(self) -> Recordings:
        """The records of the program's functions; a class whose numbers they read has its own."""
        functions = self.definition.functions
        own = any("own" in list_arguments(function) for function in functions)
        return self._recordings if own else self.definition.recordings

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without recordings: they hold functions that cannot be pickled."""
        return {name: value for name, value in self.__dict__.items() if name != "_recordings"}

    @cached_property
    def _recordings(self) -> Recordings:
        return Recordings()

    @cached_property
    def layout(self) -> Layout:
        return self.compiled.layout

    @cached_property
    def algorithm(self) -> Any:
        numbers: dict[str, Any] = {}
        for name, declared in self.definition.numbers.items():
            value = self._resolve(name)
            if not isinstance(declared, Count) and not isinstance(value, Tensor):
                value = torch.tensor([value], dtype=torch.float64)
            numbers[name] = value
        return self.reference(**numbers)

    def context_length(self, problem: Any) -> int:
        prompt = self.definition.prompt
        sizes = prompt.find_sizes(problem)
        tokens = prompt.fill_registers(problem)[next(iter(prompt.offers))]
        return prompt.count_context(tokens.shape[len(problem.batch)], sizes)

    def prompt(self, problem: Any) -> Tensor:
        filled = self.definition.prompt.fill_registers(problem)
        return self._make_tokens(problem, filled)

    def encode(self, problem: Any, state: Any) -> Tensor:
        filled = self.definition.prompt.fill_registers(problem)
        return self._make_tokens(problem, {**filled, **self.represent(filled, state)})

    def represent(self, filled: Registers, state: Any) -> Registers:
        """Return the registers that hold a state of the algorithm.

        `filled` contains the registers that the prompt fills.
        """
        registers: Registers = {}
        for name, value in state._asdict().items():
            register = self.definition.registers[name]
            shape = register.find_shape(self.sizes)
            registers[name] = value.unsqueeze(-1 - len(shape)) if register.shared else value
        return registers

    def _make_tokens(self, problem: Any, filled: Registers) -> Tensor:
        axes, registers = len(problem.batch) + 1, self.definition.registers
        known = {
            name: _add_axes(value, axes, len(registers[name].dims))
            for name, value in filled.items()
            if name in self.layout.registers
        }
        first = next(iter(self.definition.prompt.offers))
        if first not in known:  # so that the number of tokens is known
            tokens = filled[first].shape[len(problem.batch)]
            known["one"] = filled[first].new_ones(tokens)
        elif "one" in self.layout.registers:
            known["one"] = 1.0  # pyright: ignore[reportArgumentType]
        return self.layout.make_tokens(**known)

    def prologue(self) -> Sequence[Block]:
        return self._emit(self.compiled.prologue)

    def body(self, k: int) -> list[Block]:
        return self._emit(self.compiled.steps[k % len(self.compiled.steps)])

    def epilogue(self) -> Sequence[Block]:
        return self._emit(self.compiled.epilogue)

    def _emit(self, plan: Plan | None) -> list[Block]:
        return [] if plan is None else emit_blocks(plan, self.layout)

    def decode(self, problem: Any, stream: Tensor) -> Tensor:
        if self.compiled.epilogue is not None:
            assert self.compiled.answer is not None
            shape = self.compiled.answer.shape
            answer = stream[..., self.compiled.answer_places].reshape(*stream.shape[:-1], *shape)
        elif self.compiled.answer is not None:
            answer = self._read_form(stream)
        else:
            answer = self._compute_readout(stream)
        return self.definition.prompt.select_answer(problem, answer)

    def _read_form(self, stream: Tensor) -> Tensor:
        """Read an answer that is linear in the registers of a token from the stream."""
        form = self.compiled.answer
        assert form is not None
        columns = []
        for row in form.rows:
            column = torch.zeros_like(stream[..., 0])
            for entry, c in row.items():
                place = None if entry == ONE else self.layout[entry[0]].places[entry[1]]
                column = column + float(c) * (1.0 if place is None else stream[..., place])
            columns.append(column)
        return torch.stack(columns, dim=-1).reshape(*stream.shape[:-1], *form.shape)

    def _compute_readout(self, stream: Tensor) -> Tensor:
        """Compute the answer from the output stream, outside of the transformer."""
        function = self.definition.readout_part
        assert function is not None
        registers = {
            name: Value(self.layout.read(stream, name), register.find_shape(self.sizes))
            for name, register in self.definition.registers.items()
        }
        tokens = stream.shape[-2]
        context = self.definition.prompt.count_context(tokens, self.sizes)
        interpreter, numbers = Interpreter(registers, tokens, context), self.numbers_at(0)
        record = self.recordings.find(self.definition, function, 0, self.sizes, numbers)
        interpreter.write("answer", replay(record, interpreter, numbers))
        return interpreter.registers["answer"].array

    @cached_property
    def _range_checks(self) -> list[RangeCheck]:
        plans = [*self.compiled.steps, self.compiled.prologue, self.compiled.epilogue]
        checks = [RangeCheck(plan, self.layout) for plan in plans if plan is not None]
        return [check for check in checks if check.needed or check.ranges]

    def usage(self, stream: Tensor) -> float:
        """Return the largest share of a range that the stream uses, over scores, gated values
        and knots.
        """
        if self.usage_by_accept:
            return 0.0
        tokens = stream.shape[-2]
        context = self.definition.prompt.count_context(tokens, self.sizes)
        shares = [check.measure(stream, context) for check in self._range_checks]
        return max(shares, default=0.0)

    def accept(self, problem: Any) -> None:
        super().accept(problem)
        takes = self.takes or ("only" if self._is_n_fixed else "any")
        for name, count in self.definition.prompt.find_sizes(problem).items():
            size, fewer = self.sizes[name], name == "n" and takes == "up to"
            if (count > size) if fewer else (count != size and (name != "n" or takes == "only")):
                raise OutOfRangeError(
                    f"{self.name} was built for {'up to ' * fewer}{name}={size}, got {name}={count}"
                )
        filled = self.definition.prompt.fill_registers(problem) if self.within else {}
        for name, limit in self.within.items():
            largest, most = float(filled[name].detach().abs().max()), float(getattr(self, limit))
            if largest > most:
                raise OutOfRangeError(
                    f"an entry of {name} is {largest / most:.3g} times the {limit} of {most:g} "
                    f"that {self.name} was built for: build it with a larger {limit}"
                )

    @cached_property
    def _is_n_fixed(self) -> bool:
        """Return whether problems must have the built n, because weights or range checks depend
        on it.
        """
        counted = self.definition.prompt.count_context(1 << 20, {**self.sizes, "n": 1}) == 1
        return self.fixed_n or (counted and bool(self._range_checks))

    def describe_origin(self) -> dict[str, Any]:
        if not self.keeps_text:
            return {}
        definition = self.definition
        return {"program": {"text": definition.text, "digest": definition.digest}}

    def check_origin(self, path: Path, about: dict[str, Any]) -> None:
        recorded = about.get("program")
        digest = recorded.get("digest") if isinstance(recorded, dict) else None
        if self.keeps_text and digest != self.definition.digest:
            raise FileError(
                f"{path} was compiled from another text of {self.name} (digest {digest}, now "
                f"{self.definition.digest}): compile it again"
            )

    @classmethod
    def init(cls, function: Function) -> Function:
        """Decorate the function that computes the states before the first step."""
        return cls._declare(cls.definition.init(function))

    @classmethod
    def answer(cls, function: Function) -> Function:
        """Decorate the function of a token's answer, which the transformer computes."""
        return cls._declare(cls.definition.answer(function))

    @classmethod
    def readout(cls, function: Function) -> Function:
        """Decorate the function that computes the answer outside, from the output stream."""
        return cls._declare(cls.definition.readout(function))

    @classmethod
    def _declare(cls, function: Function) -> Function:
        refuse_own(function)
        if set(cls.definition.numbers) - set(cls.__dataclass_fields__):
            declare_fields(cls)
        return function


Maker = Callable[[Function], Any]
"""A function that makes a subclass of `ProgramConstruction`; its parameters depend on the
program.
"""


def _add_axes(value: Tensor, leading: int, own: int) -> Tensor:
    """Give a value all axes, (*batch, tokens, *register), so that no axis has to be inferred.

    With d = 1 and as many instances as tokens, the shapes (tokens, d) and (instances, tokens) could
    be confused.
    """
    return value.reshape(*[1] * (leading + own - value.ndim), *value.shape)
