"""The reference algorithm of a program: its interpreter, on batches of problems, differentiable.

Numbers are tensors whose first dimension counts steps (they repeat), so that `identify` can fit one
value for all steps or one for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, make_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter, select_entry
from innerloop.language.definition import Definition
from innerloop.language.interpreter import Interpreter, insert_axis
from innerloop.language.machine import Function
from innerloop.language.record import replay
from innerloop.language.types import Count, Matrices, Number
from innerloop.language.values import Matrix, Value


class Reference(Algorithm[Any, Any]):
    """A program, run from its record. The state is a named tuple of the program's states.

    A shared state has the shape (*batch, *shape); any other state has an axis of tokens too.
    """

    definition: ClassVar[Definition]

    def init(self, problem: Any, smooth: bool = False) -> Any:
        """Return the states before the first step; `smooth` has the same meaning as in `step`."""
        interpreter = self._load(problem, {})
        interpreter.smooth = smooth
        if self.definition.first_part is not None:
            self._run(interpreter, self.definition.first_part, problem, 0)
        return self._collect(interpreter, problem)

    def step(self, problem: Any, state: Any, k: int, smooth: bool = False) -> Any:
        """Return the state after a step.

        If `smooth`, functions are evaluated themselves, and not the lines between their knots.
        """
        interpreter = self._load(problem, state._asdict())
        interpreter.smooth = smooth
        self._run(interpreter, self.definition.step, problem, k)
        return self._collect(interpreter, problem)

    def predict(self, problem: Any, state: Any, smooth: bool = False) -> Tensor:
        """Return the answers.

        If `smooth`, functions are evaluated themselves, and not the lines between their knots.
        """
        interpreter = self._load(problem, state._asdict())
        interpreter.smooth = smooth
        function = self.definition.answer_part or self.definition.readout_part
        assert function is not None, "a program without an answer is refused when it is compiled"
        value = self._run(interpreter, function, problem, 0)
        interpreter.write("answer", value)
        answer = self._expand(interpreter, "answer", problem, shared=False)
        return self.definition.prompt.select_answer(problem, answer)

    def _load(self, problem: Any, state: Mapping[str, Tensor]) -> Interpreter:
        return load_interpreter(self.definition, problem, state)

    def _run(self, interpreter: Interpreter, function: Function, problem: Any, k: int) -> Any:
        like = next(iter(interpreter.registers.values())).array
        numbers = {name: self._select(name, k, like) for name in self.definition.numbers}
        sizes = self.definition.prompt.find_sizes(problem)
        record = self.definition.recordings.find(self.definition, function, k, sizes, numbers)
        return replay(record, interpreter, numbers)

    def _select(self, name: str, k: int, like: Tensor) -> Any:
        """Return a number of step k in the form that the interpreter expects."""
        declared, value = self.definition.numbers[name], getattr(self, name)
        if isinstance(declared, Count):
            return value
        entry = select_entry(value, k, like)
        if isinstance(declared, Matrices):
            return Matrix(entry)
        return Value(entry.reshape(*entry.shape, 1, 1), ())

    def _collect(self, interpreter: Interpreter, problem: Any) -> Any:
        registers = self.definition.registers
        return self.definition.state_type(
            *(
                self._expand(interpreter, name, problem, registers[name].shared)
                for name in self.definition.states
            )
        )

    def _expand(self, interpreter: Interpreter, name: str, problem: Any, shared: bool) -> Tensor:
        """Return a register with all of its batch and token dimensions."""
        value = interpreter.registers[name]
        place = value.array.ndim - len(value.shape) - 1
        array = value.array.narrow(place, 0, 1) if shared else value.array
        tokens = () if shared else (interpreter.tokens,)
        array = array.squeeze(place) if shared else array
        # A state without the problem's precision or batch is one that does not depend on it yet.
        return array.expand(*problem.batch, *tokens, *value.shape)


def load_interpreter(
    definition: Definition, problem: Any, state: Mapping[str, Tensor]
) -> Interpreter:
    """Return an interpreter with the prompt of a problem, and a state if there is one."""
    prompt, sizes = definition.prompt, definition.prompt.find_sizes(problem)
    filled = prompt.fill_registers(problem)
    like = next(iter(filled.values()))
    tokens = filled[next(iter(prompt.offers))].shape[len(problem.batch)]
    registers: dict[str, Value] = {}
    for name, register in definition.registers.items():
        shape = register.find_shape(sizes)
        if name in state:
            array = state[name]
            array = insert_axis(array, array.ndim - len(shape)) if register.shared else array
        elif name in filled:
            array = filled[name]
            if register.shared:
                array = array.narrow(array.ndim - len(shape) - 1, 0, 1)
        else:
            array = like.new_zeros(1, *shape)
        registers[name] = Value(array, shape)
    return Interpreter(registers, tokens, prompt.count_context(tokens, sizes))


def make_reference(definition: Definition, owner: type) -> type[Reference]:
    """Return the class of a program's reference algorithm, with the program's numbers as fields."""
    fields: list[Any] = []
    for name, declared in definition.numbers.items():
        free = hyperparameter(per_step=True)
        if isinstance(declared, Count):
            fields.append((name, int, field(default=declared.default)))
        elif isinstance(declared, Number) and declared.default is not None:
            default = declared.default
            fields.append((name, Tensor, _make_field(default, free if declared.free else {})))
        else:
            fields.append((name, Tensor, field(metadata=free)))
    made = make_dataclass(
        "reference",
        fields,
        bases=(Reference,),
        namespace={
            "definition": definition,
            "named_after": owner,
            "source": getattr(owner, "source", "a program"),
            "problem_type": definition.prompt.problem_type,
            "__doc__": owner.__doc__,
        },
        frozen=True,
        eq=False,
        kw_only=True,
    )
    made.__module__ = owner.__module__
    made.__qualname__ = f"{owner.__qualname__}.reference"
    return made


def _make_field(default: float, metadata: dict[str, Any]) -> Any:
    return field(
        default_factory=lambda: torch.tensor([default], dtype=torch.float64), metadata=metadata
    )
