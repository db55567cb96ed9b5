"""The interface of a prompt: data by register, sizes by letter, and the tokens that answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.types import Register


class Draw:
    """Draws the parts of a problem; a call returns float64 numbers of a given shape.

    numbers  returns this many numbers
    shares   returns this many numbers from 0 to 1
    index    returns an integer below a count
    """

    def __init__(
        self,
        numbers: Callable[[int], Sequence[float]],
        shares: Callable[[int], Sequence[float]],
        index: Callable[[int], int],
    ) -> None:
        self._numbers, self._shares, self._index = numbers, shares, index
        self.choice: tuple[int, ...] = ()
        """The integers that were drawn."""
        self.choices = 1
        """The number of possible outcomes of all these draws together."""
        self.most = 1
        """The largest `count` of a single draw."""

    def __call__(self, *shape: int) -> Tensor:
        """Return numbers of any size."""
        return _shape(self._numbers(math.prod(shape)), shape)

    def shares(self, *shape: int) -> Tensor:
        """Return numbers from 0 to 1."""
        return _shape(self._shares(math.prod(shape)), shape)

    def indices(self, count: int, *shape: int) -> Tensor:
        """Return independent random integers from 0 to count − 1, for instance actions.

        The draws are appended to `choice`, and the number of possible outcomes multiplies
        `choices`.
        """
        drawn = tuple(self._index(count) for _ in range(math.prod(shape)))
        self.choice += drawn
        self.choices *= count ** len(drawn)
        self.most = max(self.most, count)
        return torch.tensor(drawn, dtype=torch.long).reshape(shape)


def _shape(numbers: Sequence[float], shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def make_zero_draw() -> Draw:
    """Return a draw of zeros, for problems of which only the sizes matter."""
    return Draw(lambda count: [0.0] * count, lambda count: [0.0] * count, lambda count: 0)


def make_gaussian_draw(seed: int) -> Draw:
    """Return a draw of standard normal numbers, and of integers that are equally likely."""
    generator = torch.Generator().manual_seed(seed)
    return Draw(
        lambda count: torch.randn(count, generator=generator, dtype=torch.float64).tolist(),
        lambda count: torch.rand(count, generator=generator, dtype=torch.float64).tolist(),
        lambda count: int(torch.randint(count, (), generator=generator)),
    )


class Prompt(ABC):
    """A prompt: it converts a problem to tokens."""

    name: ClassVar[str]
    problem_type: ClassVar[type[Any]]
    offers: ClassVar[dict[str, tuple[str | int, ...]]]
    """The registers that a prompt can fill, and their dimensions."""
    size_names: ClassVar[tuple[str, ...]]
    """Letters of its sizes."""
    answer_dims: ClassVar[tuple[str, ...]] = ()
    """The dimensions of a token's answer."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Registers that mark tokens by their inner product: 1 for a token and itself, less by a
    gap for others.
    """
    discrete: ClassVar[str] = ""
    """The name of the integers that `draw_problem` draws, such as "actions"."""
    drawn_with: ClassVar[str] = ""
    """Any other property of problems that `draw_problem` does not vary, such as "one query"."""

    @abstractmethod
    def find_sizes(self, problem: Any) -> dict[str, int]:
        """Return the sizes of a problem by their letters."""

    @abstractmethod
    def fill_registers(self, problem: Any) -> dict[str, Tensor]:
        """Return all registers of the prompt, each of shape (*batch, tokens, *shape)."""

    @abstractmethod
    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        """Return the number of leading tokens that are context."""

    @abstractmethod
    def select_answer(self, problem: Any, answer: Tensor) -> Tensor:
        """Select the tokens that answer, from (*batch, tokens, *shape)."""

    @abstractmethod
    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> Any:
        """Return a problem of these sizes.

        All parts that may differ from problem to problem are drawn: numbers by `draw(*shape)`,
        choices by `draw.indices(count, *shape)`. Exact comparisons do not vary the other parts.
        """

    def find_default_answer(self, registers: Mapping[str, Register]) -> Any:
        """Return a default answer for programs without one, if their states suggest it."""
        return None

    def check_registers(self, program: str, registers: Mapping[str, Register]) -> None:
        """Raise an error for data that the prompt does not have, or of other dimensions."""
        for name, register in registers.items():
            if name not in self.offers:
                if register.state:
                    continue
                known = ", ".join(self.offers)
                raise InputError(
                    f"{program}: a {self.name} prompt has no data {name!r}; it has {known}"
                )
            if register.dims != self.offers[name]:
                want = ", ".join(map(repr, self.offers[name]))
                raise InputError(
                    f"{program}: {name} of a {self.name} prompt has dimensions ({want}), "
                    f"declared {register.dims}"
                )
