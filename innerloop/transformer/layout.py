"""The residual stream as memory with named registers.

A `Layout` defines the shape and the places of every register. `make_tokens` makes a stream from
values of registers, `read` reads a register from a stream, and `layout["W"][:, 0]` is the address
of a part of a register. An address can be used instead of a name everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.arrays import as_tensor, check_tensor
from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError, unknown_name_error


@dataclass(frozen=True)
class Address:
    """The places of a register, or of a part of one, in the stream.

    Indexing an address returns the address of a part of it.
    """

    label: str
    places: tuple[int, ...]
    shape: tuple[int, ...]

    def __getitem__(self, index: Any) -> Address:
        try:
            part = np.asarray(self.places).reshape(self.shape)[index]
        except IndexError as error:
            raise InputError(f"{self.label}{list(self.shape)} has no such part: {error}") from None
        if not part.size or len(set(part.ravel().tolist())) < part.size:
            raise InputError(
                f"{self.label}[{_format_index(index)}] must select places, each of them once"
            )
        return Address(
            f"{self.label}[{_format_index(index)}]", tuple(part.ravel().tolist()), part.shape
        )

    @property
    def size(self) -> int:
        return len(self.places)

    @cached_property
    def index(self) -> slice | list[int]:
        """The index of the places on the last axis of the stream.

        It is a slice if the places are contiguous, so that indexing returns a view.
        """
        run = range(self.places[0], self.places[0] + self.size)
        return slice(run.start, run.stop) if self.places == tuple(run) else list(self.places)


Location = str | Address
"""The name of a register, or the address of a part of one."""


def format_location(where: Location) -> str:
    """Format a register or an address for messages and descriptions."""
    return where.label if isinstance(where, Address) else where


class Layout:
    """The registers of a residual stream, for example `Layout(x=d, y=(), W=(k, d))`.

    A number is the length of a vector, a tuple is a shape, and `()` is a scalar.

        layout = Layout(x=2, y=())
        stream = layout.make_tokens(x=torch.ones(5, 2), y=torch.zeros(5))  # 5 tokens of width 3
        layout.read(stream, "x")  # 5 × 2
    """

    def __init__(self, **registers: int | tuple[int, ...]) -> None:
        self._addresses: dict[str, Address] = {}
        self._temporaries: dict[str, Address] = {}
        offset = 0
        for name, size_or_shape in registers.items():
            shape = size_or_shape if isinstance(size_or_shape, tuple) else (size_or_shape,)
            if any(not isinstance(length, int) or length < 1 for length in shape):
                raise InputError(
                    f"register {name} needs lengths of at least 1, got {size_or_shape!r}"
                )
            size = math.prod(shape)
            self._addresses[name] = Address(name, tuple(range(offset, offset + size)), shape)
            offset += size
        self.width = offset

    @property
    def registers(self) -> dict[str, tuple[int, ...]]:
        """The shape of each register, in the order of their places."""
        return {name: address.shape for name, address in self._addresses.items()}

    def name_places(self, name: str, places: Sequence[int], shape: tuple[int, ...]) -> None:
        """Add another name for some places, such as for a temporary value; old names stay valid."""
        if name not in self._addresses:
            self._temporaries.setdefault(name, Address(name, tuple(places), shape))

    def __getitem__(self, where: Location) -> Address:
        if not isinstance(where, Address) and where in self._temporaries:
            return self._temporaries[where]
        if isinstance(where, Address):
            known = {**self._temporaries, **self._addresses}
            own = known.get(where.label.partition("[")[0])
            if own is None or not set(where.places) <= set(own.places):
                raise InputError(
                    f"{where.label} is an address of another layout: use an address of this one"
                )
            return where
        if where not in self._addresses:
            raise unknown_name_error("register", where, self._addresses)
        return self._addresses[where]

    def make_tokens(self, **values: Any) -> Float[Tensor, "*batch n width"]:
        """Make a stream of shape `(*batch, n, width)` from the values of registers.

        The value of a register is a tensor, array or list of shape `(*batch, n, *register)`, whose
        leading dimensions broadcast, or one number for all tokens. For a register of length one,
        the shape may be `(*batch, n)`. All other registers are 0.
        """
        values = {name: _as_value(value, name) for name, value in values.items()}
        tensors = {k: v for k, v in values.items() if isinstance(v, Tensor)}
        reference = _find_common_tensor(values, tensors)
        parts = {k: self._flatten_value(k, v, tensors) for k, v in tensors.items()}
        try:
            # NumPy's function, because torch's imports a compiler, which takes a second.
            lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts.values()))
        except ValueError:
            shapes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in tensors.items())
            raise InputError(f"registers disagree on batch or token count: {shapes}") from None
        stream = reference.new_zeros(*lead, self.width)
        for name, value in values.items():
            stream[..., self[name].index] = parts.get(name, value)  # pyright: ignore[reportArgumentType]
        if not bool(torch.isfinite(stream).all()):
            wrong = next(k for k in values if not bool(torch.isfinite(self.read(stream, k)).all()))
            raise InputError(f"register {wrong} must be finite, got NaN or infinity")
        return stream

    def _flatten_value(self, name: str, value: Tensor, others: dict[str, Tensor]) -> Tensor:
        """Reshape `value` to (*batch, n, size), after checking its register's axes."""
        shape = self[name].shape
        if shape == (1,) and self._lacks_axis(value, others):
            value = value.unsqueeze(-1)
        split = value.ndim - len(shape)
        if split < 1 or tuple(value.shape[split:]) != shape:
            expected = ", ".join(["*batch", "n", *map(str, shape)])
            raise InputError(
                f"register {name} must have shape ({expected}), got {tuple(value.shape)}"
            )
        if not value.numel():
            raise InputError(f"register {name} needs at least one token, got {tuple(value.shape)}")
        return value.reshape(*value.shape[:split], -1)

    def _lacks_axis(self, value: Tensor, others: dict[str, Tensor]) -> bool:
        """Return whether the value of a register of length one has shape (*batch, n)."""
        longer = {k: v for k, v in others.items() if self[k].shape != (1,)}
        leads = {tuple(v.shape[: v.ndim - len(self[k].shape)]) for k, v in longer.items()}
        return value.shape[-1:] != (1,) or tuple(value.shape) in leads

    def read(self, stream: Float[Tensor, "*batch n width"], where: Location) -> Tensor:
        """Return a register, or the part at an address, of every token: `(*batch, n, *shape)`.

        The result is a view of the stream if the places are contiguous: clone it before writing to
        it.
        """
        address = self[where]
        if stream.shape[-1] != self.width:
            raise InputError(
                f"this layout has width {self.width}, but the stream has width {stream.shape[-1]}"
            )
        return stream[..., address.index].reshape(*stream.shape[:-1], *address.shape)

    def mask(self, *where: Location) -> Bool[Tensor, " width"]:
        """Return a mask of the stream that is true at the places of these registers."""
        places = torch.zeros(self.width, dtype=torch.bool)
        for register in where:
            places[self[register].index] = True
        return places

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._addresses == other._addresses

    def __hash__(self) -> int:
        return hash(tuple(self._addresses.values()))

    def __repr__(self) -> str:
        return f"Layout({', '.join(f'{k}={v}' for k, v in self.registers.items())})"

    tokens = RenamedMethod("make_tokens")


def _as_value(value: Any, name: str) -> Tensor | float:
    """Return numbers and tensors as they are; convert arrays and lists."""
    if isinstance(value, Tensor):
        check_tensor(value, f"register {name}")
        return value
    return value if isinstance(value, int | float) else as_tensor(value, f"register {name}")


def _find_common_tensor(values: dict[str, Any], tensors: dict[str, Tensor]) -> Tensor:
    """Return a tensor of the precision that all values share; whole numbers are converted to it."""
    floating = {name: v for name, v in tensors.items() if v.is_floating_point()}
    if not floating:
        raise InputError(
            "expected a floating-point tensor (*batch, n, *shape) for at least one register"
        )
    if len({v.dtype for v in floating.values()}) > 1:
        dtypes = ", ".join(f"{name} {v.dtype}" for name, v in floating.items())
        raise InputError(f"registers must have one precision, got {dtypes}")
    return next(iter(floating.values()))


def join(*groups: Float[Tensor, "*_ _ _"]) -> Float[Tensor, "*batch n width"]:
    """Concatenate groups of tokens (data, centroids, …) from `Layout.make_tokens` to one stream."""
    if len({(group.shape[-1], group.dtype) for group in groups}) != 1:
        shapes = ", ".join(f"{tuple(group.shape)} {group.dtype}" for group in groups)
        raise InputError(f"groups must share one layout and precision, got {shapes or 'none'}")
    lead = np.broadcast_shapes(*(group.shape[:-2] for group in groups))
    return torch.cat([group.expand(*lead, *group.shape[-2:]) for group in groups], dim=-2)


def _format_index(index: Any) -> str:
    parts = index if isinstance(index, tuple) else (index,)
    return ", ".join(_format_slice(p) if isinstance(p, slice) else str(p) for p in parts)


def _format_slice(part: slice) -> str:
    ends = [part.start, part.stop] + ([part.step] if part.step is not None else [])
    return ":".join("" if end is None else str(end) for end in ends)
