"""Blocks, and the transformer that runs them: prologue, a body repeated `loops` times, epilogue.

A step of the body is a list of blocks; step k of a looped body is the step k mod its length. A
transformer with free (trainable) weights is the same class: see `Transformer.free`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer.attention import Attention, Kind, Mask, Normalisation, Stream
from innerloop.transformer.cache import Cache, Kept, Seen
from innerloop.transformer.layout import Layout
from innerloop.transformer.mlp import MLP
from innerloop.transformer.trace import Trace


class Block(nn.Module):
    """Attention, then an MLP on its output; either may be absent."""

    def __init__(self, attention: Attention | None = None, mlp: MLP | None = None) -> None:
        super().__init__()
        if attention is None and mlp is None:
            raise InputError("a block needs attention, an MLP, or both")
        self.attention = attention
        self.mlp = mlp

    def dense(self) -> Block:
        """The same function with trainable weights throughout."""
        attention = None if self.attention is None else self.attention.dense()
        return Block(attention, None if self.mlp is None else self.mlp.dense())

    def forward(self, stream: Stream, context: int) -> Stream:
        if self.attention is not None:
            stream = self.attention(stream, context)
        return stream if self.mlp is None else self.mlp(stream)

    def extend(self, kept: Iterator[Kept], stream: Stream) -> tuple[Stream, list[Kept]]:
        """New tokens after this block; takes what its attention kept, gives what it keeps now."""
        keeps = []
        if self.attention is not None:
            stream, own = self.attention.extend(next(kept), stream)
            keeps.append(own)
        return (stream if self.mlp is None else self.mlp(stream)), keeps

    def last(self, own: Stream, seen: Seen) -> Stream:
        """The last token after this block, from what is seen of all tokens."""
        if self.attention is not None:
            own = self.attention.last(own, seen)
        return own if self.mlp is None else self.mlp(own)

    def reads(self) -> set[int]:
        """The places that it reads of other tokens."""
        return set() if self.attention is None else self.attention.reads()

    def writes(self) -> set[int]:
        """The places that it changes."""
        return {k for part in (self.attention, self.mlp) if part is not None for k in part.writes()}

    def operator_norm(self) -> float:
        """max_m max(‖Q_m‖, ‖K_m‖) + Σ_m ‖V_m‖ + ‖W₁‖ + ‖W₂‖."""
        parts = [part.operator_norms() for part in (self.attention, self.mlp) if part is not None]
        return sum(sum(norms) for norms in parts)

    def notes(self) -> list[str]:
        """One line for each head and MLP piece: what it reads and writes."""
        lines = []
        if (attention := self.attention) is not None:
            setting = f"{attention.kind}, mask {attention.mask}, {attention.normalisation}"
            heads = attention.notes or [f"free weights, {attention.heads} heads"]
            lines += [f"head {m} ({setting}): {note}" for m, note in enumerate(heads, 1)]
        if (mlp := self.mlp) is not None:
            lines += [f"mlp: {note}" for note in mlp.notes or ["free weights"]]
        return lines


class Count(TypedDict):
    """What a transformer costs."""

    layers: int
    heads: int
    width: int
    hidden: int
    parameters: int


Step = Sequence[Block]


class Transformer(nn.Module):
    """A residual stream with named registers, and the blocks that act on it."""

    def __init__(
        self,
        layout: Layout,
        body: Sequence[Step],
        *,
        prologue: Step = (),
        epilogue: Step = (),
        loops: int = 1,
    ) -> None:
        super().__init__()
        if loops < 1:
            raise InputError(f"loops must be at least 1, got {loops}")
        self.layout = layout
        self.loops = loops
        self.prologue = nn.ModuleList(prologue)
        self.body = nn.ModuleList(nn.ModuleList(step) for step in body)
        self.epilogue = nn.ModuleList(epilogue)
        self._check_widths()

    @classmethod
    def free(
        cls,
        layout: Layout,
        *,
        layers: int,
        heads: int = 1,
        hidden: int = 0,
        loops: int = 1,
        kind: Kind = "linear",
        mask: Mask = "context",
        normalisation: Normalisation | None = None,
        rank: int | None = None,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Transformer:
        """Trainable dense weights: `layers` blocks of attention and, if `hidden` > 0, an MLP."""
        for name, value, least in (("layers", layers, 1), ("hidden", hidden, 0)):
            if value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")

        def block() -> Block:
            attention = Attention.free(
                layout.width,
                heads,
                kind=kind,
                mask=mask,
                normalisation=normalisation,
                rank=rank,
                scale=scale,
                generator=generator,
            )
            if not hidden:
                return Block(attention)
            return Block(
                attention, MLP.free(layout.width, hidden, scale=scale, generator=generator)
            )

        return cls(layout, [[block()] for _ in range(layers)], loops=loops)

    def dense(self) -> Transformer:
        """The same function with trainable weights throughout: a start for a training."""

        def freed(blocks: nn.ModuleList) -> list[Block]:
            return [cast(Block, block).dense() for block in blocks]

        return Transformer(
            self.layout,
            [freed(cast(nn.ModuleList, step)) for step in self.body],
            prologue=freed(self.prologue),
            epilogue=freed(self.epilogue),
            loops=self.loops,
        )

    @property
    def steps(self) -> int:
        """Steps of the body, loops counted."""
        return self.loops * len(self.body)

    def forward(self, tokens: Stream, context: int | None = None) -> Stream:
        """The stream after the last block; `context` leading tokens are context, by default all
        but the last."""
        stream, context = tokens, self._entered(tokens, context)
        for _, block in self._schedule():
            stream = block(stream, context)
        return stream

    def begin(self) -> Cache:
        """What is kept before the first token, to `extend`."""
        layers = sum(block.attention is not None for _, block in self._schedule())
        return Cache(0, (Kept(),) * layers)

    @torch.no_grad()
    def extend(self, cache: Cache, tokens: Stream) -> tuple[Stream, Cache]:
        """The new tokens after the last block, and what to go on from; without gradients.

        Equal to the end of `forward` on all tokens so far, in time that grows with their number
        and not with its square. Every block must be causal.
        """
        self._entered(tokens, 0)
        if cache.batch not in (None, tokens.shape[:-2]):
            raise InputError(
                f"the tokens before have batch dimensions {tuple(cache.batch or ())}, "
                f"the new ones {tuple(tokens.shape[:-2])}"
            )
        if len(cache.layers) != len(self.begin().layers):
            raise InputError("the cache is of another transformer: start with this one's begin()")
        stream, layers, before = tokens, [], iter(cache.layers)
        for _, block in self._schedule():
            stream, keeps = block.extend(before, stream)
            layers += keeps
        return stream, Cache(cache.tokens + tokens.shape[-2], tuple(layers))

    @torch.no_grad()
    def last(self, tokens: Stream) -> Float[Tensor, "*batch 1 width"]:
        """The last token after the last block, without gradients; every block must be causal.

        Equal to the end of `forward`, but the other tokens are run only as far as a block reads of
        them what was written: in a decoder whose keys and values are the prompt's, not at all.
        """
        context = self._entered(tokens, None)
        blocks = [block for _, block in self._schedule()]
        first = _first_alone(blocks)
        stream = tokens
        for block in blocks[:first]:
            stream = block(stream, context)
        own, seen = stream[..., -1:, :], Seen(stream)
        for block in blocks[first:]:
            own = block.last(own, seen)
        return own

    def trace(self, tokens: Stream, context: int | None = None) -> Trace:
        """The stream before and after every block, with registers by name."""
        streams, labels, context = [tokens], ["prompt"], self._entered(tokens, context)
        for label, block in self._schedule():
            streams.append(block(streams[-1], context))
            labels.append(label)
        return Trace(self.layout, streams, labels)

    def enter(self, tokens: Stream, context: int | None = None) -> Stream:
        """The prologue alone."""
        return self._run(self.prologue, tokens, self._entered(tokens, context))

    def step(self, stream: Stream, k: int, context: int | None = None) -> Stream:
        """Step k of the body alone, counted from 0 over all loops."""
        if not 0 <= k < self.steps:
            raise InputError(f"step must be in 0 … {self.steps - 1}, got {k}")
        context = self._context(stream, context)
        return self._run(cast(nn.ModuleList, self.body[k % len(self.body)]), stream, context)

    def leave(self, stream: Stream, context: int | None = None) -> Stream:
        """The epilogue alone."""
        return self._run(self.epilogue, stream, self._context(stream, context))

    def blocks(self) -> list[Block]:
        """Every block once, whatever the loops."""
        return [module for module in self.modules() if isinstance(module, Block)]

    def count(self) -> Count:
        """Layers (loops counted), most heads and hidden units in a layer, width, stored numbers."""
        blocks = self.blocks()
        looped = sum(len(cast(nn.ModuleList, step)) for step in self.body)
        return Count(
            layers=len(self.prologue) + self.loops * looped + len(self.epilogue),
            heads=max((b.attention.heads for b in blocks if b.attention), default=0),
            width=self.layout.width,
            hidden=max((b.mlp.hidden for b in blocks if b.mlp), default=0),
            parameters=sum(parameter.numel() for parameter in self.parameters()),
        )

    def operator_norm(self) -> float:
        """The norm ‖θ‖_op of Q. Liu's lecture: the largest `Block.operator_norm`."""
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters()):
            return math.inf
        return max((block.operator_norm() for block in self.blocks()), default=0.0)

    def save(self, path: str | Path, about: dict[str, Any] | None = None) -> None:
        """Write weights and structure to a safetensors file; `about` is kept beside them."""
        from innerloop.transformer.file import save

        save(self, Path(path), about or {})

    @staticmethod
    def load(path: str | Path) -> Transformer:
        """Read a file that `save` wrote, after checking that it is whole."""
        from innerloop.transformer.file import load

        return load(Path(path))[0]

    def _schedule(self) -> Iterator[tuple[str, Block]]:
        """Every block in running order, with its label."""
        sections: list[tuple[str, Any]] = [("prologue", self.prologue)]
        body = list(self.body) * self.loops
        sections += [(f"step {k}", step) for k, step in enumerate(body, 1)]
        for label, section in [*sections, ("epilogue", self.epilogue)]:
            for block in section:
                yield label, cast(Block, block)

    def _run(self, blocks: nn.ModuleList, stream: Tensor, context: int) -> Tensor:
        for block in blocks:
            stream = block(stream, context)
        return stream

    def _entered(self, tokens: Tensor, context: int | None) -> int:
        """Check tokens that come from outside; how many of them are context."""
        if not torch.compiler.is_compiling() and not bool(torch.isfinite(tokens).all()):
            raise InputError("tokens must be finite, got NaN or infinity")
        return self._context(tokens, context)

    def _context(self, tokens: Tensor, context: int | None) -> int:
        """Check the shape and precision of a stream; how many of its tokens are context."""
        if tokens.ndim < 2 or tokens.shape[-1] != self.layout.width:
            expected = f"(*batch, tokens, {self.layout.width})"
            raise InputError(f"tokens must have shape {expected}, got {tuple(tokens.shape)}")
        dtype = next((p.dtype for p in self.parameters()), tokens.dtype)
        if tokens.dtype != dtype:
            raise InputError(
                f"tokens are {tokens.dtype}, the weights {dtype}: convert the data, "
                f"for instance problem.to({dtype})"
            )
        count = tokens.shape[-2]
        context = count - 1 if context is None else context
        if not 0 <= context <= count:
            raise InputError(
                f"context must be in 0 … {count} (the number of tokens), got {context}"
            )
        return context

    def _check_widths(self) -> None:
        width = self.layout.width
        for block in self.blocks():
            widths = (
                [part.shape[-1] for part in (block.attention.query,)] if block.attention else []
            )
            widths += [block.mlp.inner.shape[-1]] if block.mlp else []
            if any(w != width for w in widths):
                raise InputError(
                    f"a block of width {widths} does not fit a layout of width {width}"
                )


def _first_alone(blocks: Sequence[Block]) -> int:
    """The first block from which on none reads of other tokens what one of these has written."""
    read: set[int] = set()
    for k in range(len(blocks) - 1, 0, -1):
        read |= blocks[k].reads()
        if read & blocks[k - 1].writes():
            return k
    return 0
