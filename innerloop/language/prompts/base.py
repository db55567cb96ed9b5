"""The interface of a prompt: data by register, sizes by letter, and where answers are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.types import Register

Draw = Callable[..., Tensor]
"""Draws numbers of a given shape, as float64."""


class Prompt(ABC):
    """How a problem becomes tokens."""

    name: ClassVar[str]
    problem_type: ClassVar[type[Any]]
    offers: ClassVar[dict[str, tuple[str | int, ...]]]
    """The registers that a prompt can fill, and their dimensions."""
    size_names: ClassVar[tuple[str, ...]]
    """Letters of its sizes."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Registers whose products alone matter: 1 for a token and itself, less by a gap for others."""

    @abstractmethod
    def find_sizes(self, problem: Any) -> dict[str, int]:
        """Return the sizes of a problem by their letters."""

    @abstractmethod
    def fill_registers(self, problem: Any) -> dict[str, Tensor]:
        """Return what the prompt offers: (*batch, tokens, *shape) for each register."""

    @abstractmethod
    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        """Return how many leading tokens are context."""

    @abstractmethod
    def select_answer(self, problem: Any, answer: Tensor) -> Tensor:
        """Select the tokens that answer, from (*batch, tokens, *shape)."""

    @abstractmethod
    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> Any:
        """Make a problem of given sizes from random numbers."""

    def find_default_answer(self, registers: Mapping[str, Register]) -> Any:
        """Return an answer for programs that have none of their own, if their states suggest it."""
        return None

    def check_registers(self, program: str, registers: Mapping[str, Register]) -> None:
        """Refuse data that the prompt does not have, or of other dimensions."""
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
