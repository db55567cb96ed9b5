"""Base class of problems: a batch of instances, as a frozen dataclass of tensors.

The annotations of the fields declare shapes and types of numbers (see shapes.py). Every object is
checked against them when it is created. The batch dimensions come first in every tensor.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError
from innerloop.problems.base import check_numbers, check_tensors, check_whole_numbers
from innerloop.problems.shapes import TensorField, read_fields, shapes_agree

P = TypeVar("P", bound="Problem")

Index = int | slice | Tensor | tuple[int | slice | Tensor, ...]
"""Positions along the batch dimensions, as in indexing a tensor."""


@dataclass(frozen=True, eq=False)
class Problem(ABC):  # noqa: B024, every method has a default
    """A batch of instances of a problem."""

    contents: ClassVar[str] = "instance"
    """The required contents, which complete the error message "need at least one …"."""

    def __post_init__(self) -> None:
        named = self._name_tensors()
        tensors = {name: tensor for name, (_, tensor) in named.items()}
        own = hasattr(self, "from_arrays")
        taker = f"{type(self).__name__}.from_arrays" if own else "torch.as_tensor"
        check_tensors(tensors, f"{taker} takes arrays and lists")
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        if not (shapes_agree(named.values()) and self._sizes_agree()):
            raise InputError(f"expected {self._describe_shapes()}; got {shapes}")
        if any(0 in tensor.shape for tensor in tensors.values()):
            raise InputError(f"need at least one {self.contents}; got {shapes}")
        check_numbers({name: tensor for name, (f, tensor) in named.items() if f.kind is Float})
        check_whole_numbers({name: tensor for name, (f, tensor) in named.items() if f.kind is Int})

    def _sizes_agree(self) -> bool:
        """Return whether sizes agree; subclasses check what annotations cannot express."""
        return True

    @classmethod
    def _describe_shapes(cls) -> str:
        return ", ".join(field.describe() for field in read_fields(cls))

    def _name_tensors(self) -> dict[str, tuple[TensorField, Any]]:
        """Return the values that must be tensors, with their fields, by names like `start[0]`."""
        named = {}
        for field in read_fields(type(self)):
            value = getattr(self, field.name)
            if value is None and field.optional:
                continue
            if not field.several:
                named[field.name] = field, value
            elif isinstance(value, tuple):
                named |= {f"{field.name}[{j}]": (field, part) for j, part in enumerate(value)}
            else:
                kind = type(value).__name__
                raise InputError(f"{field.name} must be a tuple of tensors, got {kind}")
        return named

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions, which come first in every tensor."""
        field, tensor = next(iter(self._name_tensors().values()))
        return tuple(tensor.shape[: tensor.ndim - len(field.dimensions)])

    def __len__(self) -> int:
        """Return the size of the first batch dimension."""
        if not self.batch:
            raise InputError(
                f"expected a batch of {type(self).__name__}, got a single instance, which has no "
                "length"
            )
        return self.batch[0]

    def __iter__(self: P) -> Iterator[P]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self: P, index: Index) -> P:
        """Select instances by the leading dimensions of the batch."""
        places = index if isinstance(index, tuple) else (index,)
        if len(places) > len(self.batch):
            raise InputError(
                f"expected at most {len(self.batch)} indices for a batch of dimensions "
                f"{self.batch}, got {len(places)}"
            )
        for place in places:
            if isinstance(place, bool) or not (
                hasattr(place, "__index__") or isinstance(place, slice)
            ):
                raise InputError(f"expected a whole number or a slice as index, got {place!r}")
        _, tensor = next(iter(self._name_tensors().values()))
        try:
            empty = not tensor[places].numel()
        except (IndexError, ValueError):
            raise InputError(
                f"expected an index within a batch of dimensions {self.batch}, got {index}"
            ) from None
        if empty:
            raise InputError(
                f"expected an index that selects at least one instance of a batch of dimensions "
                f"{self.batch}, got {index}"
            )
        return self.map_tensors(lambda tensor: tensor[places])

    def map_tensors(self: P, change: Callable[[Tensor], Tensor]) -> P:
        """Apply a function to every tensor; the result is checked again."""

        def apply(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(apply, value))
            return change(value) if isinstance(value, Tensor) else value

        return replace(self, **{f.name: apply(getattr(self, f.name)) for f in fields(self)})

    def to(self: P, where: torch.dtype | torch.device | str) -> P:
        """Convert to another precision or device; a precision does not change integer tensors."""
        precision = isinstance(where, torch.dtype)

        def convert(tensor: Tensor) -> Tensor:
            return tensor.to(where) if tensor.is_floating_point() or not precision else tensor

        return self.map_tensors(convert)

    def with_queries(self: P, queries: Any) -> P:
        """Repeat each instance once per new query, along the last batch dimension.

        `queries` are a tensor, array or lists of shape (*batch, count, d).
        """
        x_query, batch = self._get_examples()[-1], self.batch
        queries = as_tensor(queries, "queries").to(x_query)
        d = x_query.shape[-1]
        if queries.ndim < 2 or (*queries.shape[:-2], queries.shape[-1]) != (*batch, d):
            expected = ", ".join(map(str, [*batch, "count", d]))
            raise InputError(f"expected queries ({expected}), got {tuple(queries.shape)}")
        if not batch:
            return self.map_tensors(lambda tensor: tensor[None]).with_queries(queries[None])
        count, last = queries.shape[-2], len(batch) - 1
        repeated = self.map_tensors(lambda tensor: tensor.repeat_interleave(count, dim=last))
        rows = queries.flatten(-3, -2)
        single = x_query.ndim == rows.ndim
        return replace(repeated, **{"x_query": rows if single else rows.unsqueeze(-2)})

    def prefixes(self: P) -> list[P]:
        """Return a problem for each prefix of 1 … n examples, whose query is the next x.

        The last problem has all examples and the first query.
        """
        x, y, x_query = self._get_examples()
        axis = len(self.batch)
        single = x_query.ndim == axis + 1
        rows = torch.cat([x, x_query.unsqueeze(axis) if single else x_query], dim=axis)
        problems = []
        for m in range(1, x.shape[axis] + 1):
            query = rows.select(axis, m) if single else rows.narrow(axis, m, 1)
            parts = {"x": x.narrow(axis, 0, m), "y": y.narrow(axis, 0, m), "x_query": query}
            problems.append(replace(self, **parts))
        return problems

    def _get_examples(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return x, y and x_query of a problem with labelled examples and queries."""
        names = ("x", "y", "x_query")
        if not {field.name for field in read_fields(type(self))}.issuperset(names):
            raise InputError(
                f"expected a problem with labelled examples and queries, got {type(self).__name__}"
            )
        x, y, x_query = (getattr(self, name) for name in names)
        return x, y, x_query

    of = RenamedMethod("from_arrays")
