"""Declared parameters: a dataclass whose fields say their type, range and meaning.

Problems, policies and constructions inherit from `Parameters`; values are checked when an object
is made, and `parse` converts the `key=value` words of the command line by the declared types.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from innerloop.errors import InputError, unknown

P = TypeVar("P", bound="Parameters")


def parameter(
    default: Any, help: str, *, least: float | None = None, most: float | None = None
) -> Any:
    """A field of a `Parameters` class: its default, its meaning, and the range it must lie in."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "most": most})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of everything that is set by named, checked values."""

    def __post_init__(self) -> None:
        for name, kind in self.types().items():
            field = self.__dataclass_fields__[name]
            value = _checked(name, kind, getattr(self, name))
            object.__setattr__(self, name, value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                _in_range(name, value, field.metadata)

    @classmethod
    def types(cls) -> dict[str, Any]:
        """The declared type of each parameter, in order."""
        hints = typing.get_type_hints(cls)
        return {field.name: hints[field.name] for field in dataclasses.fields(cls)}

    @classmethod
    def made(cls: type[P], values: dict[str, Any]) -> P:
        """An object from values by name; an unknown name is an error that says the nearest one."""
        declared = cls.types()
        for name in values:
            if name not in declared:
                raise unknown("parameter", name, declared)
        return cls(**{name: _checked(name, declared[name], v) for name, v in values.items()})

    @classmethod
    def capped(cls, name: str, wanted: int) -> int:
        """`wanted`, or the largest value of the parameter if that is smaller."""
        limit = cls.__dataclass_fields__[name].metadata["most"]
        return wanted if limit is None else min(wanted, limit)

    def values(self) -> dict[str, Any]:
        """The parameters as JSON can hold them; `made` takes them back."""
        plain = {name: getattr(self, name) for name in self.types()}
        return {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in plain.items()}


def parse(owner: type[Parameters], words: Iterable[str]) -> dict[str, Any]:
    """Convert `key=value` words by the types that `owner` declares."""
    values: dict[str, Any] = {}
    declared = owner.types()
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"expected key=value, got {word!r}; for instance -s d=5")
        if name not in declared:
            raise unknown("parameter", name, declared)
        if name in values:
            raise InputError(f"{name} is given twice")
        values[name] = _converted(name, declared[name], text.strip())
    return values


def _converted(name: str, kind: Any, text: str) -> Any:
    """The value that `text` stands for: JSON where it is JSON, otherwise a word."""
    options = _options(kind)
    if str in options or text in _words(kind):
        return text
    if type(None) in options and text.lower() in ("none", "null"):
        return None
    if float in options and text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{name} must be {_spelled(kind)}, got {text!r}") from None


def _checked(name: str, kind: Any, value: Any) -> Any:
    """`value` if it is of the declared `kind` (lists become tensors, whole numbers floats)."""
    options = _options(kind)
    wrong = InputError(f"{name} must be {_spelled(kind)}, got {_shown(value)}")
    if isinstance(value, np.generic | np.ndarray):
        value = value.item() if value.ndim == 0 else value.tolist()
    if isinstance(value, bool) and bool not in options:
        raise wrong
    if isinstance(value, str) and value in _words(kind):
        return value
    if torch.Tensor in options and isinstance(value, list | torch.Tensor):
        try:
            tensor = torch.as_tensor(value, dtype=torch.float64)
        except (ValueError, TypeError, RuntimeError, OverflowError):
            raise wrong from None
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{name} must be finite, got a NaN or infinite entry")
        return tensor
    if float in options and isinstance(value, int):
        value = float(value) if abs(value) < 1e300 else math.inf
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {value}")
    plain = tuple(option for option in options if isinstance(option, type))
    if plain and isinstance(value, plain):
        return value
    raise wrong


def _in_range(name: str, value: float, limits: Any) -> None:
    least, most = limits.get("least"), limits.get("most")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise InputError(f"{name} must be at most {most}, got {value}")


def _options(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a declared type: `float | None` → (float, NoneType)."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _words(kind: Any) -> tuple[Any, ...]:
    """The words that a declared type allows by `Literal`."""
    literals = (option for option in _options(kind) if typing.get_origin(option) is Literal)
    return tuple(word for option in literals for word in typing.get_args(option))


_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    torch.Tensor: "a list of numbers such as [[1,0],[0,1]]",
    type(None): "none",
}


def _spelled(kind: Any) -> str:
    words = [repr(word) for word in _words(kind)]
    return " or ".join(words + [_NAMES[o] for o in _options(kind) if o in _NAMES])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
