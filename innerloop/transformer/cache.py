"""What earlier tokens left behind, so that a causal transformer runs on the new tokens alone.

A block needs of the tokens before only the places of the stream that its keys and values read: with
many heads on few registers, far fewer numbers than the keys and values themselves. A `Cache` holds
them for every block that attends, once for each time that a loop passes it. Caches are values:
extending one makes another, and several may grow from the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_LEAST = 16
"""Rows that the first store has room for."""


class _Store:
    """Room for rows, of which the first `used` are taken for good."""

    def __init__(self, rows: Float[Tensor, "*lead capacity size"], used: int) -> None:
        self.rows = rows
        self.used = used


@dataclass(frozen=True, eq=False)
class Rows:
    """A sequence of rows that is extended at its end, in time that does not grow with its length.

    Sequences that grow from one another share a store, each seeing its own `length` of it. Who
    comes first writes behind the last row; who finds that place taken, or no room, takes a copy
    with room for as many again.
    """

    length: int = 0
    store: _Store | None = None

    def extended(self, new: Float[Tensor, "*lead new size"]) -> Rows:
        """These rows and the new ones."""
        count = new.shape[-2]
        length, store = self.length + count, self.store
        if store is None or store.used != self.length or length > store.rows.shape[-2]:
            room = new.new_empty(*new.shape[:-2], max(2 * length, _LEAST), new.shape[-1])
            if store is not None:
                room[..., : self.length, :] = self.all
            store = _Store(room, self.length)
        store.rows[..., self.length : length, :] = new
        store.used = length
        return Rows(length, store)

    def repeated(self, times: int) -> Rows:
        """These rows, as often as said along a new first dimension, to be extended each alone."""
        if self.store is None:
            return self
        # Full, so that whoever extends them takes a copy.
        return Rows(self.length, _Store(self.all.expand(times, *self.all.shape), self.length))

    @property
    def all(self) -> Float[Tensor, "*lead length size"]:
        """The rows, as a view that nobody writes into."""
        assert self.store is not None, "nothing was ever added"
        return self.store.rows[..., : self.length, :]


class Reading(NamedTuple):
    """The places of the stream that keys or values read, and QᵀK and V of all heads on them."""

    places: Int[Tensor, " read"]
    score: Float[Tensor, "width heads_read"]
    value: Float[Tensor, "heads_read targets"]


class Seen:
    """A stream, and the places of it that blocks read: gathered once for all that read the same."""

    def __init__(self, stream: Float[Tensor, "*batch tokens width"]) -> None:
        self._stream = stream
        self._rows: dict[tuple[int, ...], Tensor] = {}

    def of(self, places: Int[Tensor, " read"]) -> Float[Tensor, "*batch tokens read"]:
        """These places of all tokens; the last token's may be overwritten."""
        name = tuple(places.tolist())
        if name not in self._rows:
            self._rows[name] = self._stream[..., places]
        return self._rows[name]


@dataclass(frozen=True, eq=False)
class Kept:
    """What one attention layer reads of the tokens so far; nothing before the first."""

    reading: Reading | None = None
    rows: Rows = Rows()


@dataclass(frozen=True, eq=False)
class Cache:
    """All that a causal transformer keeps of the tokens so far; `layers` in running order."""

    tokens: int
    layers: tuple[Kept, ...]

    def repeated(self, times: int) -> Cache:
        """The same past for several futures: the new tokens have one batch dimension more."""
        return Cache(
            self.tokens,
            tuple(replace(kept, rows=kept.rows.repeated(times)) for kept in self.layers),
        )

    @property
    def batch(self) -> torch.Size | None:
        """The leading dimensions of the tokens so far; none before the first."""
        store = self.layers[0].rows.store if self.layers else None
        return None if store is None else store.rows.shape[:-2]
