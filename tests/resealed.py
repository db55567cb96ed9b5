"""Change files and correct their checksum, as an attacker would do."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from innerloop import sealed

VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 10**9, 10**17, 2**63, 2**64, 10**400, 0.5, 2.0, -1e-3, 1e308),
    *(float("nan"), float("inf"), "", "x", "1", "a\nb\x1b[2J", "../x", "os:system", "é" * 300),
    *([], [1], [[1, 2]], {}, {"tensor": "000000"}, {"items": []}, {"list": [1]}, {"tuple": []}),
    *({"items": [[1]]}, {"tensor": 3}, {"x": 1}, [0] * 2000),
]


def read_parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read a file's metadata and tensors as they are."""
    with safe_open(path, framework="pt") as file:
        names = sorted(file.keys())
        return dict(file.metadata()), {name: file.get_tensor(name).clone() for name in names}


def reseal(path: Path, metadata: dict[str, str], tensors: dict[str, Tensor]) -> None:
    """Write metadata and tensors with a checksum that matches."""
    signed = {key: value for key, value in metadata.items() if key != "sha256"}
    signed["sha256"] = sealed._compute_digest(signed, tensors)
    path.write_bytes(serialise(tensors, signed))


def mutate(source: Path, target: Path, rng: random.Random) -> str:
    """Write `source` with one change and a new checksum to `target`; describe the change."""
    metadata, tensors = read_parts(source)
    if rng.random() < 0.4:
        what = _mutate_tensors(tensors, rng)
    else:
        name = rng.choice(sorted(metadata.keys() - {"sha256"}))
        what = f"{name}: {_mutate_entry(metadata, name, rng)}"
    reseal(target, metadata, tensors)
    return what


def _mutate_entry(metadata: dict[str, str], name: str, rng: random.Random) -> str:
    if name in ("format", "version") or rng.random() < 0.1:
        texts = ["", "2", "x", "9" * 5000, "{", "[" * 50_000, "null", "-1", "٣", "{}", "[]"]
        metadata[name] = rng.choice(texts)
        return repr(metadata[name][:20])
    if rng.random() < 0.05:
        del metadata[name]
        return "removed"
    tree = json.loads(metadata[name])
    places = list(_iterate_places(tree))
    owner, key, trail = rng.choice(places)
    action = rng.choice(("replace", "replace", "replace", "remove", "copy", "nudge"))
    if action == "remove":
        del owner[key]
    elif action == "copy":
        other, place, _ = rng.choice(places)
        owner[key] = copy.deepcopy(other[place])
    elif action == "nudge" and type(owner[key]) in (int, float):
        owner[key] = rng.choice((-owner[key], owner[key] + 1, owner[key] * 1e30, owner[key] / 3))
    else:
        action = rng.choice(VALUES)
        owner[key] = action
    metadata[name] = json.dumps(tree)
    return f"{trail} {str(action)[:40]!r}"


def _iterate_places(tree: Any, trail: str = "") -> Any:
    """Yield every place in a tree: its container, its key in the container, and its path."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key, f"{trail}/{key}"
        if isinstance(tree[key], dict | list):
            yield from _iterate_places(tree[key], f"{trail}/{key}")


def _mutate_tensors(tensors: dict[str, Tensor], rng: random.Random) -> str:
    name = rng.choice(sorted(tensors))
    value = tensors[name]
    dtypes = (torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float32)
    number = rng.choice((float("nan"), float("inf"), -1e38, 2.5, 0.0, -1.0))
    changes = {
        "empty": lambda: value.flatten()[:0],
        "scalar": lambda: torch.zeros((), dtype=value.dtype),
        "short": lambda: value.flatten()[: max(1, value.numel() // 2)],
        "long": lambda: torch.cat([value.flatten(), value.flatten()]),
        "flat": value.flatten,
        "deeper": lambda: value[None],
        "filled": lambda: torch.full_like(value, number if value.is_floating_point() else 77),
        "cast": lambda: torch.zeros(value.shape, dtype=rng.choice(dtypes)),
    }
    action = rng.choice((*changes, "removed", "renamed", "swapped"))
    if action in changes:
        tensors[name] = changes[action]().contiguous()
    elif action == "swapped":
        other = rng.choice(sorted(tensors))
        tensors[name], tensors[other] = tensors[other], tensors[name]
    else:
        moved = tensors.pop(name)
        if action == "renamed":
            tensors["w\n" + name] = moved
    return f"tensor {name}: {action} {number if action == 'filled' else ''}"
