"""Transformers as safetensors files that are whole or refused.

safetensors alone loads a flipped bit silently, so the metadata hold a SHA-256 of everything else:
tensors, structure, and what the file says about itself. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from innerloop.errors import FileError, InputError
from innerloop.files import write_atomically
from innerloop.transformer.attention import Attention, check_setting
from innerloop.transformer.head import Compiled
from innerloop.transformer.layout import Layout
from innerloop.transformer.mlp import MLP, Everywhere
from innerloop.transformer.model import Block, Transformer

FORMAT = "innerloop-transformer"
VERSION = 1


def save(transformer: Transformer, path: Path, about: dict[str, Any]) -> None:
    """Write atomically: the file is there whole, or not at all."""
    tensors = {
        name: tensor.detach().to("cpu").contiguous().clone()
        for name, tensor in transformer.state_dict().items()
    }
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "structure": json.dumps(_structure(transformer), sort_keys=True),
        "about": json.dumps(about, sort_keys=True),
    }
    metadata["sha256"] = _digest(metadata, tensors)
    write_atomically(path, serialise(tensors, metadata))


def load(path: Path) -> tuple[Transformer, dict[str, Any]]:
    """The transformer of a file and what the file says about it."""
    metadata, tensors = _read(path)
    if metadata.get("format") != FORMAT:
        raise FileError(f"{path} is not an innerloop file: its metadata do not say {FORMAT!r}")
    version = metadata.get("version", "")
    if not version.isdecimal():
        raise FileError(f"{path} has no readable format version, got {version!r}")
    if int(version) > VERSION:
        raise FileError(
            f"{path} has format version {version}, this innerloop reads up to {VERSION}: upgrade it"
        )
    if metadata.get("sha256") != _digest(metadata, tensors):
        raise FileError(f"{path} is damaged: its contents do not match their SHA-256")
    try:
        structure, about = json.loads(metadata["structure"]), json.loads(metadata["about"])
        return _restored(structure, tensors), dict(about)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise FileError(f"{path} does not hold the weights it describes: {reason}") from None


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        what = "it is not a file" if path.exists() else "there is no such file"
        raise FileError(f"cannot read {path}: {what}")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
            return file.metadata() or {}, tensors
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise FileError(
            f"{path} was cut short or changed, or is not a safetensors file ({error})"
        ) from None


def _digest(metadata: dict[str, str], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    signed = {key: value for key, value in metadata.items() if key != "sha256"}
    digest.update(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _structure(transformer: Transformer) -> dict[str, Any]:
    return {
        "layout": [[name, list(shape)] for name, shape in transformer.layout.registers.items()],
        "loops": transformer.loops,
        "trainable": any(parameter.requires_grad for parameter in transformer.parameters()),
        "prologue": [_block_structure(block) for block in transformer.prologue],
        "body": [
            [_block_structure(block) for block in cast(nn.ModuleList, step)]
            for step in transformer.body
        ],
        "epilogue": [_block_structure(block) for block in transformer.epilogue],
    }


def _block_structure(block: nn.Module) -> dict[str, Any]:
    structure: dict[str, Any] = {}
    block = cast(Block, block)
    if (attention := block.attention) is not None:
        structure["attention"] = {
            "kind": attention.kind,
            "mask": attention.mask,
            "normalisation": attention.normalisation,
            "given": list(attention.given),
            "notes": list(attention.notes),
        }
    if (mlp := block.mlp) is not None:
        structure["mlp"] = {"everywhere": len(mlp.everywhere), "notes": list(mlp.notes)}
    return structure


def _restored(structure: dict[str, Any], tensors: dict[str, Tensor]) -> Transformer:
    layout = Layout(**{name: tuple(shape) for name, shape in structure["layout"]})
    unused = dict(tensors)

    def blocks(section: str, described: list[dict[str, Any]]) -> list[Block]:
        return [
            _restored_block(part, f"{section}.{k}", unused, layout.width)
            for k, part in enumerate(described)
        ]

    transformer = Transformer(
        layout,
        [blocks(f"body.{k}", step) for k, step in enumerate(structure["body"])],
        prologue=blocks("prologue", structure["prologue"]),
        epilogue=blocks("epilogue", structure["epilogue"]),
        loops=structure["loops"],
    )
    if unused:
        raise InputError(f"unexpected tensor {min(unused)}")
    kinds = {parameter.dtype for parameter in transformer.parameters()}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(str(kind) for kind in kinds))
        raise InputError(f"weights should be all float32 or all float64, are {found}")
    return transformer.requires_grad_(bool(structure["trainable"]))


def _restored_block(
    part: dict[str, Any], prefix: str, tensors: dict[str, Tensor], width: int
) -> Block:
    def take(name: str, *shape: int | None) -> Tensor:
        tensor = tensors.pop(f"{prefix}.{name}")
        expected = [
            have if want is None else want for want, have in zip(shape, tensor.shape, strict=False)
        ]
        if len(shape) != tensor.ndim or list(tensor.shape) != expected:
            wanted = ", ".join("any" if want is None else str(want) for want in shape)
            raise InputError(f"{prefix}.{name} should be ({wanted}), is {tuple(tensor.shape)}")
        return tensor

    def places(name: str, count: int | None) -> Tensor:
        tensor = take(name, count)
        if tensor.dtype != torch.int64 or not bool(((tensor >= 0) & (tensor < width)).all()):
            raise InputError(f"{prefix}.{name} should hold places below {width}")
        return tensor

    attention = mlp = None
    if (setting := part.get("attention")) is not None:
        query = take("attention.query", len(setting["given"]), None, width)
        heads, rank, _ = query.shape
        value = take("attention.value", heads, None, width)
        check_setting(setting["kind"], setting["mask"], setting["normalisation"])
        weights = Compiled(
            query=query,
            key=take("attention.key", heads, rank, width),
            value=value,
            targets=places("attention.targets", value.shape[1]),
            given=tuple(setting["given"]),
        )
        attention = Attention(
            weights,
            kind=setting["kind"],
            mask=setting["mask"],
            normalisation=setting["normalisation"],
            notes=setting["notes"],
        )
    if (setting := part.get("mlp")) is not None:
        inner = take("mlp.inner", None, width)
        outer = take("mlp.outer", None, inner.shape[0])
        everywhere = []
        for k in range(setting["everywhere"]):
            slope = take(f"mlp.everywhere.{k}.slope", None)
            bias = take(f"mlp.everywhere.{k}.bias", len(slope))
            weight = take(f"mlp.everywhere.{k}.weight", len(slope))
            source = places(f"mlp.everywhere.{k}.source", None)
            target = places(f"mlp.everywhere.{k}.target", len(source))
            everywhere.append(Everywhere(slope, bias, weight, source, target))
        mlp = MLP(
            inner=inner,
            bias=take("mlp.bias", inner.shape[0]),
            outer=outer,
            targets=places("mlp.targets", outer.shape[0]),
            everywhere=everywhere,
            notes=setting["notes"],
        )
    return Block(attention, mlp)
