"""Everything that a training needs to go on as if it had never stopped, in one sealed file.

Held: weights and buffers, the optimiser's state, every random state, the step, the history. The
schedule is a function of the step and batches are drawn from the seed and the step, so they need
no more. Trees of numbers are JSON, their tensors are tensors: nothing is pickled.
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

FORMAT = "innerloop-checkpoint"
VERSION = 1


def write(path: Path, about: dict[str, Any], state: dict[str, Any]) -> None:
    """Replace the file by this state of this training, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    told = {"about": json.dumps(about), "state": json.dumps(packed(state, tensors))}
    sealed.write(path, tensors, told, format=FORMAT, version=VERSION)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the training is, and its state."""
    told, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        return json.loads(told["about"]), unpacked(json.loads(told["state"]), tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(f"{path} does not hold a whole checkpoint: {error}") from None


def packed(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """`tree` as JSON can hold it; its tensors go to `tensors` under numbered names."""
    if isinstance(tree, Tensor):
        name = f"{len(tensors):06d}"
        tensors[name] = tree
        return {"tensor": name}
    if isinstance(tree, dict):
        return {"items": [[packed(k, tensors), packed(v, tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [packed(part, tensors) for part in tree]}
    return tree


def unpacked(packed: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that `packed` was made from."""
    if not isinstance(packed, dict):
        return packed
    ((kind, parts),) = packed.items()
    if kind == "tensor":
        return tensors[parts]
    if kind == "items":
        return {unpacked(k, tensors): unpacked(v, tensors) for k, v in parts}
    found = [unpacked(part, tensors) for part in parts]
    return found if kind == "list" else tuple(found)


def random_states() -> dict[str, Any]:
    """The state of every global generator that a model or an objective may draw from."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": random.getstate(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Put every global generator where `random_states` found it."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    random.setstate(states["python"])


@contextmanager
def own_random_states(seed: int) -> Iterator[None]:
    """Global generators that start from `seed`; the caller's are as before afterwards."""
    before = random_states()
    try:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        yield
    finally:
        set_random_states(before)
