"""Shapes of tensors, declared by the annotations of a dataclass and checked at run time.

A field `x: Float[Tensor, "*batch n d"]` declares a type of numbers and named dimensions. A name has
the same size in all fields; `_` has any size. Each field begins with the dimensions `*batch`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from jaxtyping import AbstractArray
from torch import Tensor

BATCH = "*batch"


@dataclass(frozen=True)
class TensorField:
    """A field whose value is a tensor or, with `several`, a tuple of tensors."""

    name: str
    kind: type
    """jaxtyping's `Float`, `Int`, … ."""
    dimensions: tuple[str, ...]
    """The names after `*batch`."""
    several: bool
    optional: bool

    def describe(self) -> str:
        """Return the declaration for error messages, such as `weights (*batch, d) or None`."""
        shape = ", ".join([BATCH, *self.dimensions])
        each = " each" if self.several else ""
        return f"{self.name} ({shape}){each}{' or None' if self.optional else ''}"


@cache
def read_fields(kind: type[Any]) -> tuple[TensorField, ...]:
    """Return the fields of a dataclass that hold tensors, with their declared shapes."""
    hints = typing.get_type_hints(kind)
    shapes = [_read_field(field.name, hints[field.name]) for field in fields(kind)]
    return tuple(field for field in shapes if field is not None)


def _read_field(name: str, hint: Any) -> TensorField | None:
    several = optional = False
    while not (inspect.isclass(hint) and issubclass(hint, AbstractArray)):
        options = typing.get_args(hint)
        optional = optional or type(None) in options
        several = several or typing.get_origin(hint) is tuple
        shaped = [option for option in options if option not in (type(None), Ellipsis)]
        if len(shaped) != 1:
            return None
        (hint,) = shaped
    first, *dimensions = hint.dim_str.split()
    if first != BATCH:
        raise TypeError(f"the shape of {name} must begin with {BATCH}, got {hint.dim_str!r}")
    return TensorField(name, hint.dtype, tuple(dimensions), several, optional)


def shapes_agree(tensors: Iterable[tuple[TensorField, Tensor]]) -> bool:
    """Return whether tensors have the declared dimensions, and equal names equal sizes."""
    sizes: dict[str, Any] = {}
    for field, tensor in tensors:
        lead = tensor.ndim - len(field.dimensions)
        if lead < 0:
            return False
        shape = tuple(tensor.shape)
        bound = [(BATCH, shape[:lead]), *zip(field.dimensions, shape[lead:], strict=True)]
        for name, size in bound:
            known = int(name) if name.isdigit() else sizes.setdefault(name, size)
            if name != "_" and size != known:
                return False
    return True
