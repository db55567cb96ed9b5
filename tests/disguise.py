"""Disguise constructions: rotate the stream, permute the heads, and add noise to every weight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.identification.instances import select_queries
from innerloop.identification.models import Model, Predictions
from innerloop.transformer import MLP, Attention, Block, Transformer
from innerloop.transformer.head import HeadWeights
from innerloop.transformer.mlp import ElementwiseUnits

NOISE = 1e-6
"""The relative error of every weight; a weight of size 1,000 has 1,000 times this error."""


@dataclass(frozen=True, eq=False)
class Disguised(Model):
    """A construction's transformer in a random basis, read out after every step.

    The stream is rotated, so its coordinates are no longer those of a register.
    """

    construction: Construction
    transformer: Transformer
    rotation: Tensor

    @classmethod
    def of(cls, construction: Construction, generator: torch.Generator) -> Disguised:
        plain = construction.transformer
        width = plain.layout.width
        rotation, _ = torch.linalg.qr(_draw_normal(generator, width, width))

        def disguise_blocks(blocks: Iterable[nn.Module]) -> list[Block]:
            return [_disguise_block(cast(Block, block), rotation, generator) for block in blocks]

        body = [disguise_blocks(cast(nn.ModuleList, step)) for step in plain.body]
        outside = {
            "prologue": disguise_blocks(plain.prologue),
            "epilogue": disguise_blocks(plain.epilogue),
        }
        disguised = Transformer(plain.layout, body, **outside, loops=plain.loops)
        return cls(construction, disguised, rotation)

    @property
    def layers(self) -> list[str]:
        return [f"layer {k}" for k in range(1, self.transformer.steps + 1)]

    def predict(self, problem: Any) -> Predictions:
        context = self.construction.context_length(problem)
        stream = self.construction.prompt(problem) @ self.rotation.mT
        stream, predictions = self.transformer.run_prologue(stream, context), []
        for k in range(self.transformer.steps):
            stream = self.transformer.step(stream, k, context)
            out = self.transformer.run_epilogue(stream, context) @ self.rotation
            predictions.append(self.construction.decode(problem, out))
        return select_queries(problem, torch.stack(predictions))


def _disguise_block(block: Block, rotation: Tensor, generator: torch.Generator) -> Block:
    attention = (
        None
        if block.attention is None
        else _disguise_attention(block.attention, rotation, generator)
    )
    return Block(
        attention, None if block.mlp is None else _disguise_mlp(block.mlp, rotation, generator)
    )


def _disguise_attention(
    plain: Attention, rotation: Tensor, generator: torch.Generator
) -> Attention:
    order = torch.randperm(plain.heads, generator=generator)
    value = plain.value.new_zeros(plain.heads, len(rotation), len(rotation))
    value[:, plain.targets] = plain.value
    weights = [plain.query @ rotation.mT, plain.key @ rotation.mT, rotation @ value @ rotation.mT]
    noisy = [_add_noise(weight[order], generator) for weight in weights]
    heads = HeadWeights(
        *noisy, targets=torch.arange(len(rotation)), explicit_split=plain.explicit_split
    )
    return Attention(heads, kind=plain.kind, mask=plain.mask, normalisation=plain.normalisation)


def _disguise_mlp(plain: MLP, rotation: Tensor, generator: torch.Generator) -> MLP:
    """Rotate an MLP; element-wise pieces become ordinary units, one for each entry."""
    inner, bias = [plain.inner], [plain.bias]
    outer = [_scatter_rows(plain.outer, plain.targets, len(rotation))]
    for piece in plain.everywhere:
        assert isinstance(piece, ElementwiseUnits)
        for source, target in zip(piece.source, piece.target, strict=True):
            unit = torch.eye(len(rotation), dtype=torch.float64)
            inner.append(piece.slope.unsqueeze(-1) * unit[source])
            outer.append(unit[target].unsqueeze(-1) * piece.weight)
            bias.append(piece.bias)
    reads, writes = torch.cat(inner) @ rotation.mT, rotation @ torch.cat(outer, dim=1)
    reads, writes, shift = (
        _add_noise(part, generator) for part in (reads, writes, torch.cat(bias))
    )
    return MLP(reads, shift, writes, torch.arange(len(rotation)))


def _scatter_rows(rows: Tensor, places: Tensor, width: int) -> Tensor:
    whole = rows.new_zeros(width, rows.shape[1])
    whole[places] = rows
    return whole


def _add_noise(weight: Tensor, generator: torch.Generator) -> Tensor:
    return weight.detach() * (1 + NOISE * _draw_normal(generator, *weight.shape))


def _draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
