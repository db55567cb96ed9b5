"""Damaged weights files: `verify` and `identify` read them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import innerloop
from innerloop.certification.building import verify
from innerloop.identification.models import ConstructionModel, predict_layers
from innerloop.transformer.file import load
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.corruption import damage_bytes, read_parts, reseal

BUILT: dict[str, dict[str, Any]] = {
    "newton": {"d": 2, "n": 3, "steps": 2},
    "relu-gradient-descent": {"d": 2, "n": 3, "steps": 1},
}
"""One file of linear attention and one with an MLP, both small."""


class Original(NamedTuple):
    """An undamaged file: its bytes, and its contents."""

    data: bytes
    about: dict[str, Any]
    weights: dict[str, Tensor]
    metadata: dict[str, str]
    tensors: dict[str, Tensor]


def prepare(folder: Path) -> list[Original]:
    """Build the files to be damaged."""
    originals = []
    for name, settings in BUILT.items():
        path = folder / f"{name}.safetensors"
        innerloop.build(name, instances=2, **settings).save(path)
        transformer, about = load(path)
        originals.append(
            Original(path.read_bytes(), about, transformer.state_dict(), *read_parts(path))
        )
    return originals


def attempt_plain(originals: list[Original], chance: random.Random, folder: Path) -> Verdict:
    """Read a file with damaged bytes: it must be refused, or have its original contents."""
    original, path = chance.choice(originals), folder / "weights.safetensors"
    path.write_bytes(damage_bytes(original.data, chance))

    def read() -> Verdict:
        transformer, about = load(path)
        if about != original.about or not holds_same(transformer.state_dict(), original.weights):
            raise Defect("a damaged weights file was read as if it were whole")
        return "survived"

    return refuse_or(read)


def attempt_resealed(originals: list[Original], chance: random.Random, folder: Path) -> Verdict:
    """Verify and run a file with changed content and a matching checksum."""
    original, path = chance.choice(originals), folder / "weights.safetensors"
    reseal(path, original.metadata, original.tensors, chance)

    def read() -> Verdict:
        built = verify(path)
        if built.certificate.holds and not is_finite(built.transformer.state_dict()):
            raise Defect("a certificate holds for weights that are not finite")
        model = ConstructionModel.read(path)
        distribution = model.distribution()
        problem = distribution.sample(3, generator=torch.Generator().manual_seed(0))
        predict_layers(model, problem)
        return "survived"

    return refuse_or(read)


def holds_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Return whether two sets of weights are equal bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def is_finite(weights: dict[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(weight).all()) for weight in weights.values())


ATTACKS = (
    Attack("weights-file-plain", 10_000, prepare, attempt_plain, sample=40),
    Attack("weights-file-resealed", 10_000, prepare, attempt_resealed, sample=12),
)
