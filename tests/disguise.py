"""Constructions in disguise: the stream rotated, heads permuted, a little noise on every weight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.identify.instances import at_queries
from innerloop.identify.models import Model, Predictions
from innerloop.transformer import MLP, Attention, Block, Transformer
from innerloop.transformer.head import Compiled
from innerloop.transformer.mlp import Everywhere

NOISE = 1e-6
"""The relative error of every weight; gates reach thousands, and theirs is multiplied by that."""


@dataclass(frozen=True, eq=False)
class Disguised(Model):
    """A transformer whose places mean nothing, read out after every step."""

    construction: Construction
    transformer: Transformer
    rotation: Tensor

    @classmethod
    def of(cls, construction: Construction, generator: torch.Generator) -> Disguised:
        plain = construction.transformer
        width = plain.layout.width
        rotation, _ = torch.linalg.qr(_normal(generator, width, width))

        def section(blocks: Iterable[nn.Module]) -> list[Block]:
            return [_block(cast(Block, block), rotation, generator) for block in blocks]

        body = [section(cast(nn.ModuleList, step)) for step in plain.body]
        outside = {"prologue": section(plain.prologue), "epilogue": section(plain.epilogue)}
        hidden = Transformer(plain.layout, body, **outside, loops=plain.loops)
        return cls(construction, hidden, rotation)

    @property
    def layers(self) -> list[str]:
        return [f"layer {k}" for k in range(1, self.transformer.steps + 1)]

    def predict(self, problem: Any) -> Predictions:
        context = self.construction.context(problem)
        stream = self.construction.prompt(problem) @ self.rotation.mT
        stream, found = self.transformer.enter(stream, context), []
        for k in range(self.transformer.steps):
            stream = self.transformer.step(stream, k, context)
            out = self.transformer.leave(stream, context) @ self.rotation
            found.append(self.construction.decode(problem, out))
        return at_queries(problem, torch.stack(found))


def _block(block: Block, rotation: Tensor, generator: torch.Generator) -> Block:
    attention = (
        None if block.attention is None else _attention(block.attention, rotation, generator)
    )
    return Block(attention, None if block.mlp is None else _mlp(block.mlp, rotation, generator))


def _attention(plain: Attention, rotation: Tensor, generator: torch.Generator) -> Attention:
    order = torch.randperm(plain.heads, generator=generator)
    value = plain.value.new_zeros(plain.heads, len(rotation), len(rotation))
    value[:, plain.targets] = plain.value
    weights = [plain.query @ rotation.mT, plain.key @ rotation.mT, rotation @ value @ rotation.mT]
    noisy = [_noisy(weight[order], generator) for weight in weights]
    compiled = Compiled(*noisy, targets=torch.arange(len(rotation)), given=plain.given)
    return Attention(compiled, kind=plain.kind, mask=plain.mask, normalisation=plain.normalisation)


def _mlp(plain: MLP, rotation: Tensor, generator: torch.Generator) -> MLP:
    """Element-wise pieces are written out, a unit for each of theirs at every entry."""
    inner, bias = [plain.inner], [plain.bias]
    outer = [_scattered(plain.outer, plain.targets, len(rotation))]
    for piece in plain.everywhere:
        assert isinstance(piece, Everywhere)
        for source, target in zip(piece.source, piece.target, strict=True):
            unit = torch.eye(len(rotation), dtype=torch.float64)
            inner.append(piece.slope.unsqueeze(-1) * unit[source])
            outer.append(unit[target].unsqueeze(-1) * piece.weight)
            bias.append(piece.bias)
    reads, writes = torch.cat(inner) @ rotation.mT, rotation @ torch.cat(outer, dim=1)
    reads, writes, shift = (_noisy(part, generator) for part in (reads, writes, torch.cat(bias)))
    return MLP(reads, shift, writes, torch.arange(len(rotation)))


def _scattered(rows: Tensor, places: Tensor, width: int) -> Tensor:
    whole = rows.new_zeros(width, rows.shape[1])
    whole[places] = rows
    return whole


def _noisy(weight: Tensor, generator: torch.Generator) -> Tensor:
    return weight.detach() * (1 + NOISE * _normal(generator, *weight.shape))


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
