"""Ways to damage a file: randomly, byte by byte, or in its content with a recomputed checksum."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from innerloop import sealed

HOSTILE_TEXT = (
    *(
        "",
        " ",
        "\0",
        "x" * 300,
        "../../../etc/passwd",
        "os:system",
        "</script><script>x()</script>",
    ),
    *("nan", "1e999", "\ud7ff\u202e", "%s%n{0}", "$page", "'; --", "newton", "linear-attention"),
)
HOSTILE_NUMBERS = (
    *(
        0,
        -1,
        1,
        2,
        2.0,
        0.5,
        -0.0,
        10**3,
        10**7,
        10**9,
        10**17,
        2**31,
        2**32,
        2**63,
        2**64,
        10**400,
    ),
    *(1e16, 1e154, 1e308, -1e308, float("nan"), float("inf"), float("-inf"), True, False, None),
)


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    """Damage bytes as disks, transfers and editors do: flip, cut, shift, repeat or blank them."""
    ways: tuple[Callable[[bytearray, int, int], bytes], ...] = (
        lambda b, i, j: bytes(b[:i]),
        lambda b, i, j: bytes(b[:i] + b[j:]),
        lambda b, i, j: bytes(b[:i] + bytes(j - i) + b[j:]),
        lambda b, i, j: bytes(b[:i] + chance.randbytes(j - i) + b[j:]),
        lambda b, i, j: bytes(b[:j] + b[i:]),
        lambda b, i, j: bytes(b[:i] + chance.randbytes(chance.randint(1, 9)) + b[i:]),
        lambda b, i, j: bytes(b + chance.randbytes(chance.randint(1, 99))),
        lambda b, i, j: bytes(b[j:] + b[:j]),
        lambda b, i, j: bytes(b[i:]),
    )
    buffer = bytearray(data)
    if chance.random() < 0.4:
        for _ in range(chance.choice((1, 1, 2, 8))):
            buffer[chance.randrange(len(buffer))] ^= 1 << chance.randrange(8)
        return bytes(buffer)
    if chance.random() < 0.05:
        return chance.choice(
            (b"", b"\n", b"\0" * len(data), chance.randbytes(len(data)), b"[" * 10**5)
        )
    start, end = sorted(chance.randrange(len(buffer) + 1) for _ in range(2))
    if chance.random() < 0.5:
        end = min(end, start + chance.randint(1, 16))
    return chance.choice(ways)(buffer, start, end)


def damage_text(text: str, chance: random.Random) -> str:
    """Damage text but keep it text, as people and programs do; numbers become hostile ones."""
    if chance.random() < 0.3:
        place = chance.randrange(len(text) + 1)
        return text[:place] + chance.choice(HOSTILE_TEXT) + text[place:]
    parts = text.split(",")
    for _ in range(chance.choice((1, 1, 3))):
        hostile = str(chance.choice((*HOSTILE_NUMBERS, *HOSTILE_TEXT)))
        parts[chance.randrange(len(parts))] = hostile
    return ",".join(parts)


def damage_tree(tree: Any, chance: random.Random) -> Any:
    """Replace, remove, double or rename one part of a tree of JSON values, anywhere in it."""
    tree = copy.deepcopy(tree)
    places = list_places(tree)
    if not places or chance.random() < 0.02:
        return make_hostile_value(tree, chance)
    owner, key = chance.choice(places)
    way = chance.random()
    if way < 0.65:
        owner[key] = make_hostile_value(owner[key], chance)
    elif way < 0.8:
        del owner[key]
    elif isinstance(owner, list):
        owner.insert(key, copy.deepcopy(owner[key]))
    elif way < 0.9:
        owner[chance.choice(HOSTILE_TEXT)] = owner.pop(key)
    else:
        other, place = chance.choice(places)
        owner[key] = copy.deepcopy(other[place])
    return tree


def list_places(tree: Any) -> list[tuple[Any, Any]]:
    """List every place of a tree as its container and key."""
    places: list[tuple[Any, Any]] = []
    if not isinstance(tree, dict | list):
        return places
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        places.append((tree, key))
        places += list_places(tree[key])
    return places


def make_hostile_value(value: Any, chance: random.Random) -> Any:
    """Return a replacement for `value`: a hostile one, one of another type, or just another one."""
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.3:
        return chance.choice((-value, value + 1, value * 10, float(value), str(value), [value]))
    kind = chance.random()
    if kind < 0.6:
        return chance.choice(HOSTILE_NUMBERS)
    if kind < 0.85:
        return chance.choice(HOSTILE_TEXT)
    nested: Any = [] if chance.random() < 0.5 else {}
    for _ in range(chance.choice((0, 1, 100))):
        nested = [nested] if chance.random() < 0.5 else {"x": nested}
    return nested


def spell_json(tree: Any, chance: random.Random) -> str:
    """Return a tree as JSON text; sometimes as text that is nested too deep for a parser."""
    if chance.random() < 0.02:
        return "[" * 100_000 + "]" * 100_000
    return json.dumps(tree)


def read_parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read the metadata and tensors of a sealed file without checking its checksum."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        return dict(file.metadata()), {name: file.get_tensor(name) for name in names}


def reseal(
    path: Path, metadata: dict[str, str], tensors: dict[str, Tensor], chance: random.Random
) -> None:
    """Write a sealed file with one change in its content and a recomputed checksum."""
    metadata, tensors = dict(metadata), dict(tensors)
    for _ in range(chance.choice((1, 1, 1, 2))):
        if chance.random() < 0.6 or not tensors:
            damage_metadata(metadata, chance)
        else:
            damage_tensors(tensors, chance)
    metadata.pop("sha256", None)
    sealed.write(path, tensors, metadata, format=metadata["format"], version=1)


def damage_metadata(metadata: dict[str, str], chance: random.Random) -> None:
    """Change one entry of the metadata: inside its JSON, its text, or the entry itself."""
    keys = sorted(metadata.keys() - {"sha256", "format", "version"}) or ["version"]
    key = "version" if chance.random() < 0.03 else chance.choice(keys)
    if chance.random() < 0.1:
        if chance.random() < 0.5 and key != "version":
            del metadata[key]
        else:
            metadata[key] = chance.choice(HOSTILE_TEXT)
        return
    try:
        tree = json.loads(metadata[key])
    except (ValueError, RecursionError):  # damaged before
        return
    metadata[key] = spell_json(damage_tree(tree, chance), chance)


def damage_tensors(tensors: dict[str, Tensor], chance: random.Random) -> None:
    """Change one tensor: its shape, precision, numbers or name, or remove it."""
    name = chance.choice(sorted(tensors))
    tensor = tensors[name]
    floating = tensor.is_floating_point()
    way = chance.randrange(8)
    if way == 0:
        del tensors[name]
    elif way == 1:
        tensors[chance.choice((*HOSTILE_TEXT[3:], *tensors))] = tensors.pop(name)
    elif way == 2:
        kinds = (torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool)
        tensors[name] = tensor.to(chance.choice(kinds))
    elif way == 3:
        shapes = [(), (0,), (1,), (3, 3), (7,), (1, *tensor.shape), (*tensor.shape, 2), (5000,)]
        tensors[name] = torch.zeros(chance.choice(shapes), dtype=tensor.dtype)
    elif way == 4 and tensor.ndim:
        tensors[name] = torch.cat([tensor, tensor], dim=chance.randrange(tensor.ndim))
    elif way == 5 and tensor.ndim > 1:
        tensors[name] = tensor.mT.contiguous()
    elif tensor.numel():
        flat = tensor.clone().flatten()
        wild = (float("nan"), float("inf"), 1e300, 1e30, -1.0, 0.0) if floating else (-1, 10**9, 0)
        value = torch.tensor(chance.choice(wild), dtype=torch.float64 if floating else torch.int64)
        flat[chance.randrange(len(flat))] = value.to(flat.dtype)
        tensors[name] = flat.view(tensor.shape)
