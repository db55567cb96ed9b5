"""The machine that runs a program: the interpreter, on arrays, or the tracer, on symbols.

Both run the author's own function, and share nothing else.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from innerloop.language.errors import CannotCompile
from innerloop.language.knots import Knots
from innerloop.language.refusals import Refusing, describe_kind

Function = Callable[..., Any]


class Machine(ABC):
    """What the primitives of the language ask of a machine."""

    @abstractmethod
    def read(self, name: str, side: str) -> Any:
        """Return a register of this token (side `me`) or of another one (`j`)."""

    @abstractmethod
    def write(self, name: str, value: Any) -> None:
        """Assign a register, or a temporary, of this token."""

    @abstractmethod
    def attend(
        self,
        summand: Function,
        over: str,
        average: bool,
        where: Function | None,
        reach: Any,
        mark: str | None,
        gap: Any,
    ) -> Any:
        """Sum over other tokens."""

    @abstractmethod
    def attend_softmax(
        self, score: Function, value: Function, over: str, where: Function | None, reach: Any
    ) -> Any:
        """Average over other tokens with softmax weights."""

    @abstractmethod
    def require(self, value: Any, low: Any, high: Any) -> None:
        """Note a range that a value must stay in."""

    @abstractmethod
    def interpolate(self, value: Any, knots: Knots) -> Any:
        """Compute straight lines between knots on every entry."""


_running: ContextVar[tuple[Machine, ...]] = ContextVar("running", default=())


def get_machine() -> Machine:
    """Return the machine that runs a program now."""
    machines = _running.get()
    if not machines:
        raise CannotCompile("this is for use inside of a program: see innerloop.language")
    return machines[-1]


@contextmanager
def run_on(machine: Machine) -> Iterator[None]:
    """Let the primitives of the language use a machine."""
    token = _running.set((*_running.get(), machine))
    try:
        yield
    finally:
        _running.reset(token)


def run_program(machine: Machine, function: Function, arguments: Mapping[str, Any]) -> Any:
    """Run a function of a program on a machine, for the token `me`."""
    with run_on(machine):
        return function(Token(machine, "me"), **arguments)


def check_function(given: Any, name: str) -> None:
    """Refuse what is no function of one other token."""
    if not callable(given) or isinstance(given, Refusing):
        raise CannotCompile(
            f"{name} takes a function of another token, got {describe_kind(given)}: write "
            f"{name}(lambda j: …)"
        )
    try:
        inspect.signature(given).bind(None)
    except TypeError:
        raise CannotCompile(
            f"{name} takes a function of one other token: write {name}(lambda j: …)"
        ) from None
    except ValueError:  # written in C: it does not say
        pass


class Token:
    """This token, `me`, whose registers are read and assigned; or another one, `j`, to be read.

    Registers are attributes, or entries by name where the name is computed: `me[f"V{k}"]`.
    """

    def __init__(self, machine: Machine, side: str) -> None:
        object.__setattr__(self, "_machine", machine)
        object.__setattr__(self, "_side", side)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return self._machine.read(name, self._side)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._side != "me":
            raise CannotCompile(
                f"a token writes to itself alone: assign to me.{name}, not j.{name}"
            )
        self._machine.write(name, value)

    def __delattr__(self, name: str) -> None:
        raise CannotCompile(f"a register cannot be deleted: assign 0 to me.{name}")
