"""Export the weights of a built transformer as plain data, for the forward pass in JavaScript."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import nn

from innerloop.constructions.base import Construction
from innerloop.registry import make_member
from innerloop.transformer import Block, Transformer

SCENE: dict[str, dict[str, Any]] = {
    "newton": {"d": 2, "n": 12, "steps": 16},
    "looped-gradient-descent": {"d": 2, "n": 12, "steps": 16, "preconditioners": "identity"}
    | {"step_size": 0.3},
}
"""The constructions on the first page, with their settings."""


def export_transformer(transformer: Transformer) -> dict[str, Any]:
    """Export weights, masks and normalisations in the format of `docs/scene/forward.js`."""
    body = cast(Iterable[nn.ModuleList], transformer.body)
    return {
        "prologue": _export_blocks(transformer.prologue),
        "body": [_export_blocks(step) for step in body],
        "epilogue": _export_blocks(transformer.epilogue),
        "steps": transformer.steps,
    }


def export_scene() -> dict[str, Any]:
    """Export the transformers of the first page, with the places of their registers."""
    weights = {}
    for name, settings in SCENE.items():
        made = make_member("constructions", Construction, name, settings)
        places = {register: made.layout[register].places for register in made.layout.registers}
        weights[name] = {
            **export_transformer(made.transformer),
            "places": {register: [int(p) for p in where] for register, where in places.items()},
            "width": made.layout.width,
        }
    return weights


def _export_blocks(blocks: Iterable[nn.Module]) -> list[dict[str, Any]]:
    return [_export_block(cast(Block, block)) for block in blocks]


def _export_block(block: Block) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    if block.attention is not None:
        attention = block.attention
        names = ("query", "key", "value")
        stacks = zip(*(getattr(attention, name).tolist() for name in names), strict=True)
        arrays["attention"] = {
            "heads": [dict(zip(names, matrices, strict=True)) for matrices in stacks],
            "targets": attention.targets.tolist(),
            "kind": attention.kind,
            "mask": attention.mask,
            "normalisation": attention.normalisation,
        }
    if block.mlp is not None:
        mlp = block.mlp.to_dense() if len(block.mlp.everywhere) else block.mlp
        arrays["mlp"] = {
            name: getattr(mlp, name).tolist() for name in ("inner", "bias", "outer", "targets")
        }
    return arrays
