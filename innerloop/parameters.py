"""Base classes of objects with declared parameters, each with a type, a range and a meaning.

Problems, policies and constructions inherit from `Parameters`. Values are checked when an object is
created; `parse_settings` converts the command line's `key=value` words to the declared types.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
import types
import typing
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from innerloop.arrays import as_tensor
from innerloop.deprecation import RenamedMethod
from innerloop.errors import FileError, InputError, unknown_name_error
from innerloop.jsonfiles import parse_json

P = TypeVar("P", bound="Parameters")

MAX_DIMENSIONS = 8
"""The largest number of dimensions of an array in a setting; torch fails at 64."""


def parameter(
    default: Any, help: str, *, least: float | None = None, most: float | None = None
) -> Any:
    """Declare a field of a member that users set: its default, its meaning, and its range.

    Args:
        default: The value that is used if the user does not set the parameter.
        help: The meaning in a few words; `innerloop show` and the documentation print it.
        least: The smallest value allowed.
        most: The largest value allowed.

    Returns:
        A field of a dataclass. A value out of range and an unknown name raise an error.

    Example:
        ```python
        step_size: float = parameter(0.1, "η", least=0)
        ```
    """
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "most": most})


class Frozen:
    """Base class of objects whose attributes cannot be assigned."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to {name!r}: make a new object")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete {name!r}: make a new object")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
@typing.dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
class Parameters(Frozen):
    """Base class of objects with declared, checked parameters.

    Every subclass is a frozen dataclass with keyword arguments; a decorator is not necessary.
    """

    _about: typing.ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.declare_fields()

    @classmethod
    def declare_fields(cls) -> None:
        """Make the class a dataclass of its annotations, and of those that it inherits.

        The class may also have the decorator `@dataclass`. It would replace the fields, which
        contain the meanings and ranges, by their defaults, so these are stored separately.
        """
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
        for name in ("__setattr__", "__delattr__"):
            delattr(cls, name)
        fields = {field.name: field.metadata for field in dataclasses.fields(cls)}
        own = {name: fields[name] for name in inspect.get_annotations(cls) if name in fields}
        inherited = (vars(base).get("_about", {}) for base in reversed(cls.__mro__[1:]))
        cls._about = functools.reduce(operator.or_, [*inherited, own])

    def __post_init__(self) -> None:
        about = self.describe_parameters()
        for name, kind in self.declared_types().items():
            value = _check_value(name, kind, getattr(self, name))
            object.__setattr__(self, name, value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                _check_range(name, value, about[name])

    @classmethod
    def describe_parameters(cls) -> dict[str, Any]:
        """Return the meaning (`help`) and the range (`least`, `most`) of each parameter."""
        return cls._about

    @classmethod
    def declared_types(cls) -> dict[str, Any]:
        """Return the declared type of each parameter, in order."""
        return dict(_resolve_types(cls))

    @classmethod
    def from_values(cls: type[P], values: dict[str, Any]) -> P:
        """Create an object from values by name; an unknown name raises an error."""
        declared = cls.declared_types()
        for name in values:
            if name not in declared:
                raise unknown_name_error("parameter", name, declared)
        return cls(**{name: _check_value(name, declared[name], v) for name, v in values.items()})

    @classmethod
    def cap_value(cls, name: str, value: int) -> int:
        """Return `value`, or the parameter's largest allowed value if that is smaller."""
        limit = cls.describe_parameters()[name]["most"]
        return value if limit is None else min(value, limit)

    def values(self) -> dict[str, Any]:
        """Return the parameters as plain values for JSON; `from_values` is the inverse."""
        plain = {name: getattr(self, name) for name in self.declared_types()}
        return {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in plain.items()}

    made = RenamedMethod("from_values")


@functools.cache
def _resolve_types(owner: type[Parameters]) -> dict[str, Any]:
    """Evaluate the annotations of a class, once per class for speed."""
    hints = typing.get_type_hints(owner)
    return {field.name: hints[field.name] for field in dataclasses.fields(owner)}


def parse_settings(owner: type[Parameters], words: Iterable[str]) -> dict[str, Any]:
    """Convert `key=value` words to parameter values of the types that `owner` declares."""
    values: dict[str, Any] = {}
    declared = owner.declared_types()
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"expected key=value, got {word!r}; for instance -s d=5")
        if name not in declared:
            raise unknown_name_error("parameter", name, declared)
        if name in values:
            raise InputError(f"{name} is set twice")
        values[name] = _convert_text(name, declared[name], text.strip())
    return values


def _convert_text(name: str, kind: Any, text: str) -> Any:
    """Convert the text of a setting: a word where the type allows it, otherwise JSON."""
    options = _list_alternatives(kind)
    if str in options or text in _list_literals(kind):
        return text
    if type(None) in options and text.lower() in ("none", "null"):
        return None
    try:
        return parse_json(text)
    except FileError:
        if float in options:
            with suppress(ValueError):  # spellings of Python that are not JSON: .3, 1., +2, 1_000
                return float(text)
        raise InputError(
            f"{name} must be {_describe_type(kind)}, got {_format_value(text)}"
        ) from None


def _check_value(name: str, kind: Any, value: Any) -> Any:
    """Check a value against its declared type; convert lists to tensors and integers to floats."""
    options = _list_alternatives(kind)
    wrong = InputError(f"{name} must be {_describe_type(kind)}, got {_format_value(value)}")
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) and bool not in options:
        raise wrong
    if isinstance(value, str) and value in _list_literals(kind):
        return value
    if torch.Tensor in options and not isinstance(value, int | float | str | None):
        # A copy: what the caller does with an array later does not change what was checked.
        tensor = as_tensor(value, name).detach().to(torch.float64, copy=True)
        if tensor.ndim > MAX_DIMENSIONS:
            raise wrong
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


def _check_range(name: str, value: float, limits: Any) -> None:
    least, most = limits.get("least"), limits.get("most")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}, got {_format_value(value)}")
    if most is not None and value > most:
        raise InputError(f"{name} must be at most {most}, got {_format_value(value)}")


def _list_alternatives(kind: Any) -> tuple[Any, ...]:
    """List the alternatives of a declared type: `float | None` → (float, NoneType)."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _list_literals(kind: Any) -> tuple[Any, ...]:
    """List the words that a declared type allows by `Literal`."""
    literals = (
        option for option in _list_alternatives(kind) if typing.get_origin(option) is Literal
    )
    return tuple(word for option in literals for word in typing.get_args(option))


_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    torch.Tensor: "a list of numbers such as [[1,0],[0,1]]",
    type(None): "none",
}


def _describe_type(kind: Any) -> str:
    words = [repr(word) for word in _list_literals(kind)]
    return " or ".join(
        words + [_TYPE_NAMES[o] for o in _list_alternatives(kind) if o in _TYPE_NAMES]
    )


def _format_value(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits, or deeper lists, than Python writes
        return f"a {type(value).__name__} that is too long to print"
    return text if len(text) <= 60 else f"{text[:57]}…"
