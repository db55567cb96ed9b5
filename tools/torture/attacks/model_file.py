"""Damaged model files: `identify` loads them, and the report shows their runs."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.recipes import base as recipes
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.attacks.history_file import list_runs
from tools.torture.attacks.weights_file import holds_same, is_finite
from tools.torture.corruption import damage_bytes, read_parts, reseal
from tools.torture.victims import train_here


class Original(NamedTuple):
    """A finished run."""

    folder: Path
    data: bytes
    about: dict
    weights: dict[str, Tensor]
    metadata: dict[str, str]
    tensors: dict[str, Tensor]


def prepare(folder: Path) -> Original:
    """Train the run whose model file is damaged."""
    train_here(folder / "run")
    path = folder / "run" / "model.safetensors"
    _, model, about = recipes.load(path)
    return Original(
        folder / "run", path.read_bytes(), about, dict(model.state_dict()), *read_parts(path)
    )


def attempt_plain(original: Original, chance: random.Random, folder: Path) -> Verdict:
    """Load a model file with damaged bytes."""
    path = folder / "model.safetensors"
    path.write_bytes(damage_bytes(original.data, chance))

    def read() -> Verdict:
        _, model, about = recipes.load(path)
        if about != original.about or not holds_same(dict(model.state_dict()), original.weights):
            raise Defect("a damaged model file was read as if it were whole")
        return "survived"

    return refuse_or(read)


def attempt_resealed(original: Original, chance: random.Random, folder: Path) -> Verdict:
    """Load, run and report a model file with changed content and a matching checksum."""
    runs = folder / "runs"
    for name in ("good", "bad"):
        shutil.copytree(original.folder, runs / name)
    path = runs / "bad" / "model.safetensors"
    reseal(path, original.metadata, original.tensors, chance)
    list_runs(runs, "model file")

    def read() -> Verdict:
        recipe, model, _ = recipes.load(path)
        if not is_finite(dict(model.state_dict())):
            raise Defect("a model with weights that are not finite was loaded")
        problem = recipe.build_distribution().sample(
            3, generator=torch.Generator().manual_seed(0), dtype=torch.float32
        )
        dtype = next(model.parameters()).dtype
        with torch.no_grad():
            recipe.predict_layers(model, problem.to(dtype))
        return "survived"

    return refuse_or(read)


ATTACKS = (
    Attack("model-file-plain", 10_000, prepare, attempt_plain, sample=40),
    Attack("model-file-resealed", 10_000, prepare, attempt_resealed, sample=10),
)
