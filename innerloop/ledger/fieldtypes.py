"""Check data that was read from a file against the types that its dataclass declares."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal


def check_types(value: Any, kind: Any, where: str) -> None:
    """Raise a `TypeError` if a value, or a value nested in it, does not have its declared type.

    Supported types are classes, dataclasses, `Literal`, unions, `Sequence`, `Mapping` and tuples.
    """
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        _check_union(value, options, where)
    elif origin is Literal:
        if value not in options:
            raise TypeError(f"{where} must be one of {options}, got {value!r:.60}")
    elif origin is Mapping:
        _check_class(value, Mapping, where)
        for name, part in value.items():
            check_types(name, options[0], f"a name in {where}")
            check_types(part, options[1], f"{where}.{name}")
    elif origin in (Sequence, tuple):
        _check_class(value, list | tuple, where)
        if origin is tuple and len(value) != len(options):
            raise TypeError(f"{where} must have {len(options)} parts, got {len(value)}")
        for k, part in enumerate(value):
            check_types(part, options[k if origin is tuple else 0], f"{where}[{k}]")
    elif is_dataclass(kind):
        _check_class(value, kind, where)
        for name, declared in _resolve_fields(kind).items():
            check_types(getattr(value, name), declared, f"{where}.{name}")
    else:
        _check_class(value, kind, where)


def _check_union(value: Any, options: tuple[Any, ...], where: str) -> None:
    for option in options:
        try:
            return check_types(value, option, where)
        except TypeError:
            continue
    names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise TypeError(f"{where} must be {names}, got {value!r:.60}")


def _check_class(value: Any, kind: Any, where: str) -> None:
    if kind is float and type(value) is int:  # a whole number is a number
        return
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float)):
        name = getattr(kind, "__name__", str(kind))
        raise TypeError(f"{where} must be {name}, got {value!r:.60}")


@cache
def _resolve_fields(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
