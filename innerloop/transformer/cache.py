"""Caches of earlier tokens, so that a causal transformer runs on the new tokens alone.

From earlier tokens a block needs only the places of the stream that its keys and values read: with
many heads on few registers, far fewer numbers than the keys and values themselves. A `Cache` holds
them for every block with attention, once for each pass of a loop. Caches are values: extending one
makes another, and several may grow from the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_MIN_CAPACITY = 16
"""Smallest number of rows that a store has room for."""


class _Store:
    """A buffer for rows; the first `used` are written and never change."""

    def __init__(self, rows: Float[Tensor, "*lead capacity size"], used: int) -> None:
        self.rows = rows
        self.used = used


@dataclass(frozen=True, eq=False)
class Rows:
    """A sequence of rows that is extended at its end in amortised constant time per row.

    Sequences that grow from one another share a store, each seeing its own `length` of it. The
    first to be extended writes after its last row; where that place is taken, or there is no
    room, the rows are copied to a store with room for twice as many.
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
        # The store is full, so that extending takes a copy.
        return Rows(self.length, _Store(self.tensor.expand(times, *self.tensor.shape), self.length))

    @property
    def tensor(self) -> Float[Tensor, "*lead length size"]:
        """The rows, as a view that must not be written to."""
        assert self.store is not None, "nothing was ever added"
        return self.store.rows[..., : self.length, :]


class Reading(NamedTuple):
    """Places of the stream that keys or values read, and QᵀK and V of all heads on them."""

    places: Int[Tensor, " read"]
    score: Float[Tensor, "width heads_read"]
    value: Float[Tensor, "heads_read targets"]


class GatheredStream:
    """A stream whose places are gathered once for all blocks that read the same ones."""

    def __init__(self, stream: Float[Tensor, "*batch tokens width"]) -> None:
        self._stream = stream
        self._rows: dict[tuple[int, ...], Tensor] = {}

    def gather(self, places: Int[Tensor, " read"]) -> Float[Tensor, "*batch tokens read"]:
        """Return these places of all tokens; the caller may overwrite the last token's."""
        key = tuple(places.tolist())
        if key not in self._rows:
            self._rows[key] = self._stream[..., places]
        return self._rows[key]


@dataclass(frozen=True, eq=False)
class LayerCache:
    """What one attention layer reads from the tokens so far; empty before the first token."""

    reading: Reading | None = None
    rows: Rows = Rows()


@dataclass(frozen=True, eq=False)
class Cache:
    """Everything a causal transformer keeps of the tokens so far; `layers` in running order."""

    tokens: int
    layers: tuple[LayerCache, ...]

    def repeat(self, times: int) -> Cache:
        """Repeat the past for several continuations: new tokens have one more batch dimension."""
        return Cache(
            self.tokens,
            tuple(replace(layer, rows=layer.rows.repeat(times)) for layer in self.layers),
        )

    @property
    def batch(self) -> torch.Size | None:
        """Leading dimensions of the tokens so far; None before the first token."""
        store = self.layers[0].rows.store if self.layers else None
        return None if store is None else store.rows.shape[:-2]
