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
    """Attention, then an MLP on its output; one of them may be missing."""

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
        """Run this block on new tokens; return their stream and the new cache of the block.

        The old cache is the next item of `caches`. A block without attention takes none and returns
        an empty list.
        """
        updated = []
        if self.attention is not None:
            stream, cache = self.attention.extend(next(caches), stream)
            updated.append(cache)
        return (stream if self.mlp is None else self.mlp(stream)), updated

    def forward_last(self, last: Stream, gathered: GatheredStream) -> Stream:
        """Run this block on the last token; `gathered` contains what it reads of all tokens."""
        if self.attention is not None:
            last = self.attention.forward_last(last, gathered)
        return last if self.mlp is None else self.mlp(last)

    def places_read(self) -> set[int]:
        """Return the places of the stream that this block reads from other tokens."""
        return set() if self.attention is None else self.attention.places_read()

    def places_written(self) -> set[int]:
        """Return the places of the stream that this block changes."""
        return {
            k
            for part in (self.attention, self.mlp)
            if part is not None
            for k in part.places_written()
        }

    def operator_norm(self) -> float:
        """Return max_m max(‖Q_m‖, ‖K_m‖) + Σ_m ‖V_m‖ + ‖W₁‖ + ‖W₂‖."""
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
