"""Damaged checkpoints: `train --resume` reads them and continues the training."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from innerloop.recipes import base as recipes
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.attacks.weights_file import holds_same, is_finite
from tools.torture.corruption import damage_bytes, read_parts, reseal
from tools.torture.victims import read_weights, train_here

MIDDLE = 3
"""The step of the checkpoint, in the middle of the training."""


class Original(NamedTuple):
    """A checkpoint of an unfinished training, and the final weights of that training."""

    data: bytes
    weights: dict[str, Tensor]
    metadata: dict[str, str]
    tensors: dict[str, Tensor]


class Stopped(Exception):
    """An exception that ends a training in the middle."""


def prepare(folder: Path) -> Original:
    """Train once to the end and once to the middle."""
    whole = train_here(folder / "whole")
    stop_training(folder / "half", MIDDLE)
    path = folder / "half" / "checkpoint.safetensors"
    weights = {name: value.clone() for name, value in whole.model.state_dict().items()}
    return Original(path.read_bytes(), weights, *read_parts(path))


def stop_training(folder: Path, step: int) -> None:
    """Train until a step, and leave the files of a run that is killed there."""
    from innerloop.training import checkpoint

    write, written = checkpoint.write, []

    def write_and_stop(path: Path, about: dict, state: dict) -> None:
        write(path, about, state)
        written.append(state["step"])
        if state["step"] >= step:
            raise Stopped

    checkpoint.write = write_and_stop
    try:
        train_here(folder)
    except Stopped:
        return
    finally:
        checkpoint.write = write
    raise AssertionError(f"no checkpoint at step {step}, only at {written}")


def attempt_plain(original: Original, chance: random.Random, folder: Path) -> Verdict:
    """Resume from a checkpoint with damaged bytes."""
    (folder / "checkpoint.safetensors").write_bytes(damage_bytes(original.data, chance))

    def resume() -> Verdict:
        train_here(folder, resume=True)
        if not holds_same(read_weights(folder), original.weights):
            raise Defect("a training went on from a damaged checkpoint to other weights")
        return "survived"

    return refuse_or(resume)


def attempt_resealed(original: Original, chance: random.Random, folder: Path) -> Verdict:
    """Resume from a checkpoint with changed content and a matching checksum."""
    reseal(folder / "checkpoint.safetensors", original.metadata, original.tensors, chance)

    def resume() -> Verdict:
        run = train_here(folder, resume=True)
        if not is_finite(run.model.state_dict()):
            raise Defect("a training went on from weights that are not finite")
        recipes.load(folder / "model.safetensors")
        return "survived"

    return refuse_or(resume)


ATTACKS = (
    Attack("checkpoint-plain", 10_000, prepare, attempt_plain, sample=15),
    Attack("checkpoint-resealed", 10_000, prepare, attempt_resealed, sample=25),
)
