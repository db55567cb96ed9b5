"""The interface for replaying a record: the interpreter works on arrays, the tracer on symbols.

Both replay the same record, and have no other code in common.
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
"""A function that computes the summand for all pairs of this token and another."""


class Machine(ABC):
    """The operations of a record besides arithmetic."""

    numbers: Mapping[str, Any]
    """The program's numbers, in the form in which this machine computes with them."""

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
        """Return a sum over other tokens."""

    @abstractmethod
    def attend_softmax(
        self, score: Body, value: Body, over: str, where: Body | None, reach: Any
    ) -> Any:
        """Return an average over other tokens with softmax weights."""

    @abstractmethod
    def interpolate(self, value: Any, knots: Knots) -> Any:
        """Return the straight lines between knots, evaluated on every entry."""

    @abstractmethod
    def check_range(self, value: Any, low: Any, high: Any) -> None:
        """Record, or check, that a value is in a range."""

    @abstractmethod
    def check_values(self, value: Any, condition: Condition, name: str) -> None:
        """Record, or check, a condition on every entry of a value."""

    @abstractmethod
    def check_number(self, number: Any, least: int, above: bool, name: str) -> None:
        """Check that a number of the program is at least a limit, or above it."""


RUNNING: ContextVar[tuple[Machine, ...]] = ContextVar("running", default=())


def get_machine() -> Any:
    """Return the machine that is replaying a record."""
    return RUNNING.get()[-1]


@contextmanager
def run_on(machine: Machine) -> Iterator[None]:
    """Make products and hidden units of symbols add their nodes to this machine."""
    token = RUNNING.set((*RUNNING.get(), machine))
    try:
        yield
    finally:
        RUNNING.reset(token)


def check_function(function: Any, name: str) -> None:
    """Raise an error unless the argument is a function of one other token."""
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
