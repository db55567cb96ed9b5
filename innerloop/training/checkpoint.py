"""Checkpoints: the complete state of a training run in one file, to resume it bit for bit.

A checkpoint contains weights and buffers, the optimiser's state, all random states, the step and
the history. The schedule depends only on the step, and batches only on seed and step, so they are
not stored. Nested containers are stored as JSON and tensors as tensors; nothing is pickled.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop import sealed
from innerloop.errors import FileError, InputError
from innerloop.jsonfiles import parse_object

FORMAT = "innerloop-checkpoint"
VERSION = 1


def write(path: Path, about: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the description and the state of a run; an existing file is replaced atomically."""
    tensors: dict[str, Tensor] = {}
    metadata = {"about": json.dumps(about), "state": json.dumps(pack(state, tensors))}
    sealed.write(path, tensors, metadata, format=FORMAT, version=VERSION)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the description of a run and its state."""
    metadata, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        about, state = (parse_object(metadata[name]) for name in ("about", "state"))
        tree = unpack(state, tensors)
        _require(not tensors, "it has tensors that its state does not refer to")
        _require(isinstance(tree, dict), "it has no state")
        return about, tree
    except (KeyError, ValueError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise FileError(f"{path} does not contain a complete checkpoint: {reason}") from None


def pack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Convert `tree` to JSON values; its tensors are added to `tensors` under numbered names."""
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
    """Rebuild the tree that `pack` converted; tensors that are used are removed from `tensors`."""
    if not isinstance(packed, dict):
        _require(not isinstance(packed, list), "its state has a list without a kind")
        return packed
    _require(len(packed) == 1, "its state has a part of several kinds")
    ((kind, parts),) = packed.items()
    if kind == "tensor":
        _require(isinstance(parts, str), "its state names a tensor by a value that is not text")
        return tensors.pop(parts)
    _require(isinstance(parts, list), "its state has a part that is not a list")
    if kind == "items":
        _require(all(isinstance(p, list) and len(p) == 2 for p in parts), "its state has no pairs")
        return {unpack(key, tensors): unpack(value, tensors) for key, value in parts}
    _require(kind in ("list", "tuple"), "its state has a part of an unknown kind")
    items = [unpack(part, tensors) for part in parts]
    return items if kind == "list" else tuple(items)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)


def get_random_states() -> dict[str, Any]:
    """Return the states of all global random generators that a model or an objective may use."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": random.getstate(),
    }


def check_random_states(states: Any) -> None:
    """Check random states from a file: their types, and that new generators accept them."""
    names = {"torch", "cuda", "numpy", "python"}
    _require(isinstance(states, dict) and states.keys() == names, "it has no random states")
    bad = InputError("its random states are not valid states of generators")
    try:
        torch.Generator().set_state(states["torch"])
        random.Random().setstate(states["python"])
        version, words, normal = states["python"]
        kind, keys, place, has_spare, spare = states["numpy"]
        fits = isinstance(keys, Tensor) and keys.dtype == torch.int64 and keys.shape == (624,)
        fits = fits and bool(((keys >= 0) & (keys < 2**32)).all()) and kind == "MT19937"
        fits = fits and type(place) is type(has_spare) is int
        fits = fits and 0 <= place <= 624 and 0 <= has_spare <= 1 and math.isfinite(spare)
        fits = fits and version == 3 and all(0 <= word < 2**32 for word in words)
        fits = fits and (normal is None or math.isfinite(normal))
        fits = fits and isinstance(states["cuda"], list)
        fits = fits and all(_is_bytes(state) for state in states["cuda"])
    except (RuntimeError, ValueError, TypeError, OverflowError):
        raise bad from None
    if not fits:
        raise bad


def _is_bytes(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.ndim == 1


def set_random_states(states: dict[str, Any]) -> None:
    """Set all global random generators to states from `get_random_states`."""
    torch.set_rng_state(states["torch"])
    if (
        torch.cuda.is_available()
    ):  # this machine may have fewer devices than the one that wrote the states
        torch.cuda.set_rng_state_all(states["cuda"][: torch.cuda.device_count()])
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    random.setstate(states["python"])


@contextmanager
def isolate_random_states(seed: int) -> Iterator[None]:
    """Seed the global generators with `seed` in a `with` block; restore their states after it."""
    saved = get_random_states()
    try:
        torch.manual_seed(seed)
        np.random.seed(seed if seed < 2**32 else [seed % 2**32, seed >> 32])  # words of 32 bits
        random.seed(seed)
        yield
    finally:
        set_random_states(saved)
