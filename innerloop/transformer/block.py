"""A block of a transformer: attention, then an MLP on its output."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError
from innerloop.transformer.attention import Attention, Stream
from innerloop.transformer.cache import GatheredStream, LayerCache
from innerloop.transformer.mlp import MLP


class Block(nn.Module):
    """Attention, then an MLP on its output; either may be absent."""

    def __init__(self, attention: Attention | None = None, mlp: MLP | None = None) -> None:
        super().__init__()
        if attention is None and mlp is None:
            raise InputError("a block needs attention, an MLP, or both")
        self.attention = attention
        self.mlp = mlp

    def to_dense(self) -> Block:
        """Return the same function with all weights dense and trainable."""
        attention = None if self.attention is None else self.attention.to_dense()
        return Block(attention, None if self.mlp is None else self.mlp.to_dense())

    def forward(self, stream: Stream, context: int) -> Stream:
        if self.attention is not None:
            stream = self.attention(stream, context)
        return stream if self.mlp is None else self.mlp(stream)

    def extend(
        self, caches: Iterator[LayerCache], stream: Stream
    ) -> tuple[Stream, list[LayerCache]]:
        """Run this block on new tokens; take its layer's cache from `caches`, return the new one.

        The list is empty for a block without attention, which takes no cache.
        """
        updated = []
        if self.attention is not None:
            stream, cache = self.attention.extend(next(caches), stream)
            updated.append(cache)
        return (stream if self.mlp is None else self.mlp(stream)), updated

    def forward_last(self, last: Stream, gathered: GatheredStream) -> Stream:
        """Run this block on the last token, given the places of all tokens that it reads."""
        if self.attention is not None:
            last = self.attention.forward_last(last, gathered)
        return last if self.mlp is None else self.mlp(last)

    def places_read(self) -> set[int]:
        """Places of the stream that this block reads from other tokens."""
        return set() if self.attention is None else self.attention.places_read()

    def places_written(self) -> set[int]:
        """Places of the stream that this block changes."""
        return {
            k
            for part in (self.attention, self.mlp)
            if part is not None
            for k in part.places_written()
        }

    def operator_norm(self) -> float:
        """max_m max(‖Q_m‖, ‖K_m‖) + Σ_m ‖V_m‖ + ‖W₁‖ + ‖W₂‖."""
        parts = [part.operator_norms() for part in (self.attention, self.mlp) if part is not None]
        return sum(sum(norms) for norms in parts)

    def describe(self) -> list[str]:
        """Describe each head and MLP piece in one line: what it reads and writes."""
        lines = []
        if (attention := self.attention) is not None:
            setting = f"{attention.kind}, mask {attention.mask}, {attention.normalisation}"
            heads = attention.notes or [f"dense weights, {attention.heads} heads"]
            lines += [f"head {m} ({setting}): {note}" for m, note in enumerate(heads, 1)]
        if (mlp := self.mlp) is not None:
            lines += [f"mlp: {note}" for note in mlp.notes or ["dense weights"]]
        return lines

    notes = RenamedMethod("describe")
