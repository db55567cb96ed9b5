"""The transformer: a prologue, a body that is repeated `loops` times, and an epilogue.

The body is a list of steps, and each step is a list of blocks. Step k of a looped body is the step
k mod the length of the body. `Transformer.with_random_weights` makes a trainable transformer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError
from innerloop.transformer.attention import Attention, Stream
from innerloop.transformer.attention_settings import Kind, Mask, Normalisation
from innerloop.transformer.block import Block
from innerloop.transformer.cache import Cache, GatheredStream, LayerCache
from innerloop.transformer.layout import Layout
from innerloop.transformer.mlp import MLP
from innerloop.transformer.trace import Trace


class Count(TypedDict):
    """The size of a transformer."""

    layers: int
    heads: int
    width: int
    hidden: int
    parameters: int


Step = Sequence[Block]


class Transformer(nn.Module):
    """A transformer whose residual stream has named registers.

    Args:
        layout: The registers of the stream.
        prologue: Blocks that run before the first step.
        body: The steps, each a list of blocks.
        epilogue: Blocks that run after the last step.
        loops: Number of times that the body is repeated with the same weights.
    """

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
    def with_random_weights(
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
        """Build a transformer with dense trainable weights, with `layers` blocks in its body.

        Args:
            layout: The registers of the stream.
            layers: Number of blocks.
            heads: Heads of each block.
            hidden: Hidden units of the MLP of each block; 0 means no MLP.
            loops: Number of times that the blocks are repeated with the same weights.
            kind: "linear", "relu" or "softmax" attention.
            mask: The keys of each query token: "all", "context" or "causal".
            normalisation: "1/n", "1/N", "1/i" or "1"; None is "1" for softmax, else "1/n".
            rank: Number of rows of Q and K of a head; None means the width of the stream.
            scale: Factor of the standard deviation of the weights.
            generator: The random number generator.
        """
        for name, value, least in (("layers", layers, 1), ("hidden", hidden, 0)):
            if value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")

        def block() -> Block:
            attention = Attention.with_random_weights(
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
                attention,
                MLP.with_random_weights(layout.width, hidden, scale=scale, generator=generator),
            )

        return cls(layout, [[block()] for _ in range(layers)], loops=loops)

    def to_dense(self) -> Transformer:
        """Return an equivalent transformer with dense trainable weights, to start training from."""

        def densify(blocks: nn.ModuleList) -> list[Block]:
            return [cast(Block, block).to_dense() for block in blocks]

        return Transformer(
            self.layout,
            [densify(cast(nn.ModuleList, step)) for step in self.body],
            prologue=densify(self.prologue),
            epilogue=densify(self.epilogue),
            loops=self.loops,
        )

    @property
    def steps(self) -> int:
        """The number of steps of the body, over all loops."""
        return self.loops * len(self.body)

    def forward(self, tokens: Stream, context: int | None = None) -> Stream:
        """Return the stream after all blocks.

        The first `context` tokens are context; by default, these are all tokens but the last.
        """
        stream, context = tokens, self._check_tokens(tokens, context)
        for _, block in self._schedule():
            stream = block(stream, context)
        return stream

    def new_cache(self) -> Cache:
        """Return an empty cache for this transformer, for use with `extend`."""
        layers = sum(block.attention is not None for _, block in self._schedule())
        return Cache(0, (LayerCache(),) * layers)

    @torch.no_grad()
    def extend(self, cache: Cache, tokens: Stream) -> tuple[Stream, Cache]:
        """Run new tokens after the cached ones; return their stream and the extended cache.

        The result equals the last tokens of `forward` on all tokens so far, but the cached tokens
        are not computed again. Every block must be causal, and gradients are not recorded.
        """
        self._check_tokens(tokens, 0)
        if cache.batch not in (None, tokens.shape[:-2]):
            raise InputError(
                f"the cached tokens have batch dimensions {tuple(cache.batch or ())}, "
                f"the new ones {tuple(tokens.shape[:-2])}"
            )
        if len(cache.layers) != len(self.new_cache().layers):
            raise InputError(
                "the cache belongs to another transformer: start from this one's new_cache()"
            )
        stream, layers, caches = tokens, [], iter(cache.layers)
        for _, block in self._schedule():
            stream, updated = block.extend(caches, stream)
            layers += updated
        return stream, Cache(cache.tokens + tokens.shape[-2], tuple(layers))

    @torch.no_grad()
    def forward_last(self, tokens: Stream) -> Float[Tensor, "*batch 1 width"]:
        """Return the last token after the last block, without gradients; all blocks must be causal.

        The result equals the last token of `forward`. The other tokens run only through blocks
        whose output a later block reads from them. In a decoder whose keys and values depend only
        on the prompt, they run through none.
        """
        context = self._check_tokens(tokens, None)
        blocks = [block for _, block in self._schedule()]
        first = _first_independent_block(blocks)
        stream = tokens
        for block in blocks[:first]:
            stream = block(stream, context)
        last, gathered = stream[..., -1:, :], GatheredStream(stream)
        for block in blocks[first:]:
            last = block.forward_last(last, gathered)
        return last

    def trace(self, tokens: Stream, context: int | None = None) -> Trace:
        """Return the streams before the first and after every block, with registers by name."""
        streams, labels, context = [tokens], ["prompt"], self._check_tokens(tokens, context)
        for label, block in self._schedule():
            streams.append(block(streams[-1], context))
            labels.append(label)
        return Trace(self.layout, streams, labels)

    def run_prologue(self, tokens: Stream, context: int | None = None) -> Stream:
        """Return the stream after the prologue."""
        return self._run_blocks(self.prologue, tokens, self._check_tokens(tokens, context))

    def step(self, stream: Stream, k: int, context: int | None = None) -> Stream:
        """Return the stream after step k of the body alone, counted from 0 over all loops."""
        if not 0 <= k < self.steps:
            raise InputError(f"step must be in 0 … {self.steps - 1}, got {k}")
        context = self._resolve_context(stream, context)
        return self._run_blocks(cast(nn.ModuleList, self.body[k % len(self.body)]), stream, context)

    def run_epilogue(self, stream: Stream, context: int | None = None) -> Stream:
        """Return the stream after the epilogue alone."""
        return self._run_blocks(self.epilogue, stream, self._resolve_context(stream, context))

    def blocks(self) -> list[Block]:
        """List every block once, even if it is looped."""
        return [module for module in self.modules() if isinstance(module, Block)]

    def count(self) -> Count:
        """Return the size of the transformer.

        Every pass of a loop counts as layers. The numbers of heads and hidden units are the largest
        of all layers.
        """
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
        """Return the norm ‖θ‖_op of Q. Liu 2025: the largest `Block.operator_norm`."""
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters()):
            return math.inf
        return max((block.operator_norm() for block in self.blocks()), default=0.0)

    def save(self, path: str | Path, about: dict[str, Any] | None = None) -> None:
        """Write weights, structure and the metadata `about` to a safetensors file."""
        from innerloop.transformer.file import save

        save(self, Path(path), about or {})

    @staticmethod
    def load(path: str | Path) -> Transformer:
        """Read a file written by `save`, after checking that it is intact."""
        from innerloop.links import resolve_links
        from innerloop.transformer.file import load

        return load(resolve_links(Path(path)))[0]

    def _schedule(self) -> Iterator[tuple[str, Block]]:
        """Yield every block with its label, in the order in which they run."""
        sections: list[tuple[str, Any]] = [("prologue", self.prologue)]
        body = list(self.body) * self.loops
        sections += [(f"step {k}", step) for k, step in enumerate(body, 1)]
        for label, section in [*sections, ("epilogue", self.epilogue)]:
            for block in section:
                yield label, cast(Block, block)

    def _run_blocks(self, blocks: nn.ModuleList, stream: Tensor, context: int) -> Tensor:
        for block in blocks:
            stream = block(stream, context)
        return stream

    def _check_tokens(self, tokens: Tensor, context: int | None) -> int:
        """Check the user's tokens and return how many of them are context."""
        if not torch.compiler.is_compiling() and not bool(torch.isfinite(tokens).all()):
            raise InputError("tokens must be finite, got NaN or infinity")
        return self._resolve_context(tokens, context)

    def _resolve_context(self, tokens: Tensor, context: int | None) -> int:
        """Check the shape and precision of a stream; return how many of its tokens are context."""
        if tokens.ndim < 2 or tokens.shape[-1] != self.layout.width:
            expected = f"(*batch, tokens, {self.layout.width})"
            raise InputError(f"tokens must have shape {expected}, got {tuple(tokens.shape)}")
        dtype = next((p.dtype for p in self.parameters()), tokens.dtype)
        if tokens.dtype != dtype:
            raise InputError(
                f"tokens are {tokens.dtype}, but weights are {dtype}: convert the data, "
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
                    f"expected blocks of width {width}, the width of the layout, got {widths}"
                )

    begin = RenamedMethod("new_cache")
    enter = RenamedMethod("run_prologue")
    leave = RenamedMethod("run_epilogue")
    last = RenamedMethod("forward_last")
    free = RenamedMethod("with_random_weights")
    dense = RenamedMethod("to_dense")


def _first_independent_block(blocks: Sequence[Block]) -> int:
    """Return the number of blocks through which all tokens, not only the last one, must run."""
    read: set[int] = set()
    for k in range(len(blocks) - 1, 0, -1):
        read |= blocks[k].places_read()
        if read & blocks[k - 1].places_written():
            return k
    return 0
