"""Save and load transformers as sealed safetensors files: structure, weights, metadata."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from innerloop import sealed
from innerloop.errors import FileError, InputError
from innerloop.jsonfiles import parse_object
from innerloop.links import resolve_links
from innerloop.transformer.attention import Attention, check_setting
from innerloop.transformer.head import HeadWeights
from innerloop.transformer.layout import Layout
from innerloop.transformer.mlp import MLP, ElementwiseUnits
from innerloop.transformer.model import Block, Transformer

FORMAT = "innerloop-transformer"
VERSION = 1
MAX_LOOPS = 10_000
"""Largest number of loops that a file may specify."""
MAX_REASON = 200
"""Largest number of characters that an error message quotes from a file."""


def save(transformer: Transformer, path: Path, about: dict[str, Any]) -> None:
    """Write a transformer and its metadata atomically, to a path that the user named."""
    metadata = {
        "structure": json.dumps(_describe_transformer(transformer), sort_keys=True),
        "about": json.dumps(about, sort_keys=True),
    }
    tensors = transformer.state_dict()
    sealed.write(resolve_links(path), tensors, metadata, format=FORMAT, version=VERSION)


def load(path: Path) -> tuple[Transformer, dict[str, Any]]:
    """Read a transformer and its metadata from a file; a link in its path is an error."""
    metadata, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        structure, about = (parse_object(metadata[name]) for name in ("structure", "about"))
        return _restore_transformer(structure, tensors), about
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).partition("\n")[0].split())[:MAX_REASON]
        raise FileError(f"{path} does not contain the weights it describes: {reason}") from None


def _describe_transformer(transformer: Transformer) -> dict[str, Any]:
    return {
        "layout": [[name, list(shape)] for name, shape in transformer.layout.registers.items()],
        "loops": transformer.loops,
        "trainable": any(parameter.requires_grad for parameter in transformer.parameters()),
        "prologue": [_describe_block(block) for block in transformer.prologue],
        "body": [
            [_describe_block(block) for block in cast(nn.ModuleList, step)]
            for step in transformer.body
        ],
        "epilogue": [_describe_block(block) for block in transformer.epilogue],
    }


def _describe_block(block: nn.Module) -> dict[str, Any]:
    structure: dict[str, Any] = {}
    block = cast(Block, block)
    if (attention := block.attention) is not None:
        structure["attention"] = {
            "kind": attention.kind,
            "mask": attention.mask,
            "normalisation": attention.normalisation,
            "given": list(attention.explicit_split),
            "notes": list(attention.notes),
        }
    if (mlp := block.mlp) is not None:
        structure["mlp"] = {"everywhere": len(mlp.everywhere), "notes": list(mlp.notes)}
    return structure


def _restore_transformer(structure: Any, tensors: dict[str, Tensor]) -> Transformer:
    _check_structure(structure, tensors)
    layout = Layout(**{name: tuple(shape) for name, shape in structure["layout"]})
    unused = dict(tensors)

    def restore(section: str, structures: Any) -> list[Block]:
        return [
            _restore_block(part, f"{section}.{k}", unused, layout.width)
            for k, part in enumerate(structures)
        ]

    transformer = Transformer(
        layout,
        [restore(f"body.{k}", step) for k, step in enumerate(structure["body"])],
        prologue=restore("prologue", structure["prologue"]),
        epilogue=restore("epilogue", structure["epilogue"]),
        loops=structure["loops"],
    )
    if unused:
        raise InputError(f"unexpected tensor {min(unused)}")
    dtypes = {parameter.dtype for parameter in transformer.parameters()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise InputError(f"weights must be all float32 or all float64, got {names}")
    return transformer.requires_grad_(structure["trainable"])


def _check_structure(structure: Any, tensors: dict[str, Tensor]) -> None:
    """Raise `InputError` for a structure larger than the file's tensors, before memory is taken."""
    loops, trainable, names = structure["loops"], structure["trainable"], set()
    if type(loops) is not int or not 1 <= loops <= MAX_LOOPS:
        raise InputError(f"loops must be a whole number from 1 to {MAX_LOOPS:,}, got {loops!r}")
    if type(trainable) is not bool:
        raise InputError(f"trainable must be true or false, got {trainable!r}")
    # Every block has a matrix with a column for each place of the stream.
    most = max((tensor.shape[-1] for tensor in tensors.values() if tensor.ndim > 1), default=0)
    width = 0
    for name, shape in structure["layout"]:
        if type(name) is not str or name in names:
            raise InputError(f"registers need different names, got {name!r}")
        if type(shape) is not list or not all(type(n) is int and 1 <= n <= most for n in shape):
            raise InputError(f"register {name!r} must have lengths from 1 to {most}, got {shape!r}")
        names.add(name)
        width += math.prod(shape)
        if width > most:
            raise InputError(f"its registers have more places than its weights, which have {most}")


def _check_setting_types(setting: Any, **kinds: type) -> None:
    """Raise `InputError` for settings of a block that are not lists of one type."""
    for name, kind in kinds.items():
        values = setting[name]
        if type(values) is not list or not all(type(value) is kind for value in values):
            raise InputError(f"{name!r} must be a list of {kind.__name__}, got {values!r}")


def _restore_block(part: Any, prefix: str, tensors: dict[str, Tensor], width: int) -> Block:
    def take(name: str, *shape: int | None, places: bool = False) -> Tensor:
        tensor = tensors.pop(f"{prefix}.{name}")
        if not places and tensor.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"weights must be all float32 or all float64, {prefix}.{name} is {tensor.dtype}"
            )
        sizes = [
            actual if size is None else size
            for size, actual in zip(shape, tensor.shape, strict=False)
        ]
        if len(shape) != tensor.ndim or list(tensor.shape) != sizes:
            expected = ", ".join("any" if size is None else str(size) for size in shape)
            raise InputError(
                f"{prefix}.{name} must have shape ({expected}), got {tuple(tensor.shape)}"
            )
        return tensor

    def take_places(name: str, count: int | None) -> Tensor:
        tensor = take(name, count, places=True)
        if tensor.dtype != torch.int64 or not bool(((tensor >= 0) & (tensor < width)).all()):
            raise InputError(f"{prefix}.{name} must contain places below {width}")
        return tensor

    attention = mlp = None
    if (setting := part.get("attention")) is not None:
        _check_setting_types(setting, given=bool, notes=str)
        if not setting["given"]:
            raise InputError("attention needs at least one head")
        query = take("attention.query", len(setting["given"]), None, width)
        heads, rank, _ = query.shape
        value = take("attention.value", heads, None, width)
        check_setting(setting["kind"], setting["mask"], setting["normalisation"])
        weights = HeadWeights(
            query=query,
            key=take("attention.key", heads, rank, width),
            value=value,
            targets=take_places("attention.targets", value.shape[1]),
            explicit_split=tuple(setting["given"]),
        )
        attention = Attention(
            weights,
            kind=setting["kind"],
            mask=setting["mask"],
            normalisation=setting["normalisation"],
            notes=setting["notes"],
        )
    if (setting := part.get("mlp")) is not None:
        _check_setting_types(setting, notes=str)
        if type(setting["everywhere"]) is not int:
            raise InputError(f"'everywhere' must be a number, got {setting['everywhere']!r}")
        inner = take("mlp.inner", None, width)
        outer = take("mlp.outer", None, inner.shape[0])
        everywhere = []
        for k in range(setting["everywhere"]):
            slope = take(f"mlp.everywhere.{k}.slope", None)
            bias = take(f"mlp.everywhere.{k}.bias", len(slope))
            weight = take(f"mlp.everywhere.{k}.weight", len(slope))
            source = take_places(f"mlp.everywhere.{k}.source", None)
            target = take_places(f"mlp.everywhere.{k}.target", len(source))
            everywhere.append(ElementwiseUnits(slope, bias, weight, source, target))
        mlp = MLP(
            inner=inner,
            bias=take("mlp.bias", inner.shape[0]),
            outer=outer,
            targets=take_places("mlp.targets", outer.shape[0]),
            everywhere=everywhere,
            notes=setting["notes"],
        )
    return Block(attention, mlp)
