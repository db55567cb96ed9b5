"""Change a transformer's weights without changing its function: basis, unused places, split heads.

A change of basis B (orthonormal columns, BᵀB = I) maps the stream h to B h, and the weights to

    Q ← Q Bᵀ,   K ← K Bᵀ,   V ← B V Bᵀ,   W₁ ← W₁ Bᵀ,   W₂ ← B W₂

Scores and hidden units then read BᵀB h = h, and all outputs are multiplied by B. So the new stream
is B h after every block, and multiplying it by Bᵀ returns the old one. This is exact up to rounding
for every kind of attention. B is a random orthogonal matrix for a rotation, and a permutation
matrix for a permutation of places. A B with more rows than columns adds dead places, which no
weight reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer.attention import Attention
from innerloop.transformer.head import HeadWeights
from innerloop.transformer.layout import Layout
from innerloop.transformer.mlp import MLP
from innerloop.transformer.model import Block, Transformer

Basis = Float[Tensor, "places width"]
MAX_ERROR = 1e-8
"""Largest entry of BᵀB − I that is accepted as rounding."""


def draw_rotation(width: int, generator: torch.Generator, dead: int = 0) -> Basis:
    """Draw a random orthonormal basis of a stream with `dead` additional places."""
    places = width + dead
    square = torch.randn(places, places, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square).Q[:, :width]


def draw_permutation(width: int, generator: torch.Generator, dead: int = 0) -> Basis:
    """Draw a permutation of the places of a stream with `dead` additional places."""
    places = torch.randperm(width + dead, generator=generator)[:width]
    return torch.eye(width + dead, dtype=torch.float64)[:, places]


def change_basis(transformer: Transformer, basis: Basis) -> Transformer:
    """Return an equivalent transformer whose stream is multiplied by `basis`.

    Its single register is called `stream`. To use it, multiply prompts by the basis, and the output
    stream by the transpose of the basis.
    """
    width = transformer.layout.width
    if basis.shape[1] != width or len(basis) < width:
        raise InputError(
            f"expected a basis of (at least {width}) × {width} entries, got {tuple(basis.shape)}"
        )
    error = float((basis.mT @ basis - torch.eye(width).to(basis)).abs().max())
    if not error <= MAX_ERROR:
        raise InputError(
            f"expected a basis with orthonormal columns, got BᵀB − I as large as {error:.1e}"
        )
    basis = basis.to(next(transformer.parameters()))
    layout = Layout(stream=len(basis))
    return _map_blocks(transformer, layout, lambda block: _change_block(block, basis))


def split_heads(transformer: Transformer, generator: torch.Generator) -> Transformer:
    """Return the transformer with each head split into two heads, in random order.

    Both new heads have the scores of the old one. A random share of each row of its V goes to the
    first of them, and the remainder to the second.
    """

    def split(block: Block) -> Block:
        attention = block.attention
        return block if attention is None else Block(_split(attention, generator), block.mlp)

    return _map_blocks(transformer, transformer.layout, split)


def _map_blocks(
    transformer: Transformer, layout: Layout, change: Callable[[Block], Block]
) -> Transformer:
    def apply(blocks: Iterable[nn.Module]) -> list[Block]:
        return [change(cast(Block, block)) for block in blocks]

    mapped = Transformer(
        layout,
        [apply(cast(nn.ModuleList, step)) for step in transformer.body],
        prologue=apply(transformer.prologue),
        epilogue=apply(transformer.epilogue),
        loops=transformer.loops,
    )
    return mapped.requires_grad_(False)


def _change_block(block: Block, basis: Basis) -> Block:
    with torch.no_grad():
        dense, places = block.to_dense(), torch.arange(len(basis))
        attention, mlp = dense.attention, dense.mlp
        if attention is not None:
            read = (attention.query @ basis.mT, attention.key @ basis.mT)
            written = basis @ attention.value @ basis.mT
            attention = _replace_heads(
                attention, HeadWeights(*read, written, places, attention.explicit_split)
            )
        if mlp is not None:
            mlp = MLP(mlp.inner @ basis.mT, mlp.bias.detach(), basis @ mlp.outer, places)
    return Block(attention, mlp)


def _split(plain: Attention, generator: torch.Generator) -> Attention:
    share = torch.rand(plain.value.shape[:2], generator=generator, dtype=torch.float64)
    first = (3 * share.unsqueeze(-1) - 1).to(plain.value) * plain.value.detach()
    value = torch.cat([first, plain.value.detach() - first])
    order = torch.randperm(len(value), generator=generator)
    query, key = (torch.cat([part.detach()] * 2)[order] for part in (plain.query, plain.key))
    split = [plain.explicit_split[int(m) % plain.heads] for m in order]
    weights = HeadWeights(query, key, value[order], plain.targets, tuple(split))
    return _replace_heads(plain, weights)


def _replace_heads(attention: Attention, weights: HeadWeights) -> Attention:
    return Attention(
        weights,
        kind=attention.kind,
        mask=attention.mask,
        normalisation=attention.normalisation,
    )
