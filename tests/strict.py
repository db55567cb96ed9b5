"""The type checker of the tests: beartype, with whole numbers accepted as floats.

`jaxtyped` replaces jaxtyping's decorator of the same name and takes a fraction of its time. It
checks arguments once and not twice, stores no shapes for functions without shapes in their
annotations, and checks only the first calls of every function in each test.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_scope = jaxtyping.jaxtyped  # jaxtyping's own
MOST = 8
"""The number of calls of a function that are checked in a test; later calls are usually similar."""
_TEST = [0]


def next_test() -> None:
    """Start a test: the first calls of every function are checked again."""
    _TEST[0] += 1


def jaxtyped(fn: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Make a function, or a dataclass's `__init__`, raise an error for values of the wrong type."""
    if fn is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(fn):
        own = "__init__" in vars(fn) and not hasattr(fn.__init__, "__wrapped__")
        if dataclasses.is_dataclass(fn) and own:
            fn.__init__ = jaxtyped(fn.__init__, typechecker=typechecker)
        return fn
    if not inspect.isfunction(fn):
        raise TypeError(f"{fn!r} is decorated before it is checked: put its decorators above")
    if "<locals>" in fn.__qualname__:
        return fn  # made anew at every call of what it is in: to check it would cost more than it
    checked: Any = None
    shaped, test, calls = False, -1, 0

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked, shaped, test, calls
        if test != _TEST[0]:
            test, calls = _TEST[0], 0
        if calls >= MOST:
            return fn(*args, **kwargs)
        calls += 1
        if checked is None:
            hints = {name: _resolve_hint(hint, fn) for name, hint in fn.__annotations__.items()}
            fn.__annotations__ = hints
            checked, shaped = typechecker(fn), any(map(_has_shape, hints.values()))
        if not shaped:
            return checked(*args, **kwargs)
        with _scope("context"):
            return checked(*args, **kwargs)

    return call


def _resolve_hint(hint: Any, fn: Any) -> Any:
    """Evaluate an annotation; one that names something undefined allows anything."""

    def holder(value: Any) -> None: ...

    holder.__annotations__ = {"value": hint}
    try:
        return typing.get_type_hints(holder, fn.__globals__, include_extras=True)["value"]
    except (NameError, AttributeError, TypeError, ValueError):
        return Any


def _has_shape(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(_has_shape(part) for part in typing.get_args(hint))
