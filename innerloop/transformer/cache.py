"""Caches of earlier tokens, with which a causal transformer runs on new tokens only.

From earlier tokens a block needs only the places of the stream that its keys and values read. If
many heads read few registers, these are far fewer numbers than the keys and values themselves. A
`Cache` contains them for every block with attention, once for each pass of a loop. A cache never
changes: extending it returns another one, and several caches can be made from the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_MIN_CAPACITY = 16
"""Smallest number of rows that a buffer has room for."""


class _Store:
    """A buffer for rows; the first `used` of them are written and never change."""

    def __init__(self, rows: Float[Tensor, "*lead capacity size"], used: int) -> None:
        self.rows = rows
        self.used = used


@dataclass(frozen=True, eq=False)
class Rows:
    """A sequence of rows that is extended at its end in amortised constant time per row.

    An extended sequence shares a buffer with the sequence it was made from; each uses the first
    `length` rows. Extending writes after the last row. If that place is taken or the buffer is
    full, the rows are copied to a buffer with room for twice as many.
    """

    length: int = 0
    store: _Store | None = None

    def extend(self, new: Float[Tensor, "*lead new size"]) -> Rows:
        """Return these rows followed by the new ones."""
        count = new.shape[-2]
        length, store = self.length + count, self.store
        if store is None or store.used != self.length or length > store.rows.shape[-2]:
            room = new.new_empty(*new.shape[:-2], max(2 * length, _MIN_CAPACITY), new.shape[-1])
            if store is not None:
                room[..., : self.length, :] = self.tensor
            store = _Store(room, self.length)
        store.rows[..., self.length : length, :] = new
        store.used = length
        return Rows(length, store)

    def repeat(self, times: int) -> Rows:
        """Repeat these rows along a new first dimension; each copy can be extended on its own."""
        if self.store is None:
            return self
        # The buffer is full, so that extending a repeated sequence copies it.
        return Rows(self.length, _Store(self.tensor.expand(times, *self.tensor.shape), self.length))

    @property
    def tensor(self) -> Float[Tensor, "*lead length size"]:
        """The rows, as a view that must not be written to."""
        assert self.store is not None, "nothing was ever added"
        return self.store.rows[..., : self.length, :]


class Reading(NamedTuple):
    """The places of the stream that keys or values read, with QᵀK and V of all heads there."""

    places: Int[Tensor, " read"]
    score: Float[Tensor, "width heads_read"]
    value: Float[Tensor, "heads_read targets"]


class GatheredStream:
    """A stream that gathers places once for all blocks that read the same places."""

    def __init__(self, stream: Float[Tensor, "*batch tokens width"]) -> None:
        self._stream = stream
        self._rows: dict[tuple[int, ...], Tensor] = {}

    def gather(self, places: Int[Tensor, " read"]) -> Float[Tensor, "*batch tokens read"]:
        """Return these places of all tokens; the caller may overwrite those of the last token."""
        key = tuple(places.tolist())
        if key not in self._rows:
            self._rows[key] = self._stream[..., places]
        return self._rows[key]


@dataclass(frozen=True, eq=False)
class LayerCache:
    """The numbers that one attention layer reads from the tokens so far; initially empty."""

    reading: Reading | None = None
    rows: Rows = Rows()


@dataclass(frozen=True, eq=False)
class Cache:
    """The numbers that a causal transformer needs of the tokens so far.

    `layers` has one cache per attention layer, in the order in which they run.
    """

    tokens: int
    layers: tuple[LayerCache, ...]

    def repeat(self, times: int) -> Cache:
        """Repeat the cache for several continuations; new tokens have one more batch dimension."""
        return Cache(
            self.tokens,
            tuple(replace(layer, rows=layer.rows.repeat(times)) for layer in self.layers),
        )

    @property
    def batch(self) -> torch.Size | None:
        """The leading dimensions of the tokens so far; None before the first token."""
        store = self.layers[0].rows.store if self.layers else None
        return None if store is None else store.rows.shape[:-2]
