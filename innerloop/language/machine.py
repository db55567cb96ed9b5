"""The machine that replays a record: the interpreter, on arrays, or the tracer, on symbols.

Both replay the same record, and share nothing else.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from innerloop.language.conditions import Condition
from innerloop.language.errors import CannotCompile
from innerloop.language.knots import Knots
from innerloop.language.refusals import Refusing, describe_kind

Function = Callable[..., Any]
Body = Callable[[], Any]
"""Computes what is summed, for all pairs of this token and another."""


class Machine(ABC):
    """What the instructions of a record do, besides arithmetic."""

    numbers: Mapping[str, Any]
    """The program's numbers, as this machine computes with them."""

    @abstractmethod
    def read(self, name: str, side: str) -> Any:
        """Return a register of this token (side `me`) or of another one (`j`)."""

    @abstractmethod
    def write(self, name: str, value: Any) -> None:
        """Assign a register, or a temporary, of this token."""

    @abstractmethod
    def attend(
        self,
        summand: Body,
        over: str,
        average: bool,
        where: Body | None,
        reach: Any,
        mark: str | None,
        gap: Any,
    ) -> Any:
        """Sum over other tokens."""

    @abstractmethod
    def attend_softmax(
        self, score: Body, value: Body, over: str, where: Body | None, reach: Any
    ) -> Any:
        """Average over other tokens with softmax weights."""

    @abstractmethod
    def interpolate(self, value: Any, knots: Knots) -> Any:
        """Compute straight lines between knots on every entry."""

    @abstractmethod
    def check_range(self, value: Any, low: Any, high: Any) -> None:
        """Note, or check, that a value stays in a range."""

    @abstractmethod
    def check_values(self, value: Any, condition: Condition, name: str) -> None:
        """Note, or check, a condition on every entry of a value."""

    @abstractmethod
    def check_number(self, number: Any, least: int, above: bool, name: str) -> None:
        """Check that a number of the program is at least, or above, a limit."""


RUNNING: ContextVar[tuple[Machine, ...]] = ContextVar("running", default=())


def get_machine() -> Any:
    """Return the machine that replays a record now."""
    return RUNNING.get()[-1]


@contextmanager
def run_on(machine: Machine) -> Iterator[None]:
    """Let products and units of symbols be added to a machine."""
    token = RUNNING.set((*RUNNING.get(), machine))
    try:
        yield
    finally:
        RUNNING.reset(token)


def check_function(function: Any, name: str) -> None:
    """Refuse anything but a function of one other token."""
    if not callable(function) or isinstance(function, Refusing):
        raise CannotCompile(
            f"{name} takes a function of another token, got {describe_kind(function)}: write "
            f"{name}(lambda j: …)"
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise CannotCompile(
            f"{name} takes a function of one other token: write {name}(lambda j: …)"
        ) from None
    except ValueError:  # written in C: it does not say
        pass
