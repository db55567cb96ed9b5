"""Checkpoints: the whole state of a training run in one sealed file, to resume it bit for bit.

Contents: weights and buffers, the optimiser's state, every random state, the step, the history. The
schedule follows from the step, and batches from the seed and the step, so neither is stored. Nested
containers are stored as JSON and tensors as tensors: nothing is pickled.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop import sealed
from innerloop.errors import FileError
from innerloop.jsonfiles import parse_object

FORMAT = "innerloop-checkpoint"
VERSION = 1


def write(path: Path, about: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a run's description and state, replacing the file atomically."""
    tensors: dict[str, Tensor] = {}
    metadata = {"about": json.dumps(about), "state": json.dumps(pack(state, tensors))}
    sealed.write(path, tensors, metadata, format=FORMAT, version=VERSION)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the description of a run and its state."""
    metadata, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        about, state = (parse_object(metadata[name]) for name in ("about", "state"))
        return about, unpack(state, tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(f"{path} does not hold a whole checkpoint: {error}") from None


def pack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Convert `tree` to JSON values, moving its tensors to `tensors` under numbered names."""
    if isinstance(tree, Tensor):
        name = f"{len(tensors):06d}"
        tensors[name] = tree
        return {"tensor": name}
    if isinstance(tree, dict):
        return {"items": [[pack(k, tensors), pack(v, tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [pack(part, tensors) for part in tree]}
    return tree


def unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    """Rebuild the tree that `pack` converted."""
    if not isinstance(packed, dict):
        return packed
    ((kind, parts),) = packed.items()
    if kind == "tensor":
        return tensors[parts]
    if kind == "items":
        return {unpack(k, tensors): unpack(v, tensors) for k, v in parts}
    items = [unpack(part, tensors) for part in parts]
    return items if kind == "list" else tuple(items)


def get_random_states() -> dict[str, Any]:
    """Return the state of every global generator that a model or an objective may draw from."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": random.getstate(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Restore every global generator to a state that `get_random_states` returned."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    random.setstate(states["python"])


@contextmanager
def isolate_random_states(seed: int) -> Iterator[None]:
    """Seed the global generators with `seed` inside the block; restore the caller's after it."""
    saved = get_random_states()
    try:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        yield
    finally:
        set_random_states(saved)
