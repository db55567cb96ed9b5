"""Matrices of a program, one per step: explicit, random near a multiple of I, or a multiple of
I.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from innerloop.constructions.base import MAX_WEIGHTS
from innerloop.errors import InputError, OutOfRangeError

Matrices = Tensor | Literal["random", "identity"]
"""Explicit matrices (one per step, or one for all), "random" ones near a multiple of I, or the
multiple itself ("identity").
"""


def make_matrices(
    matrices: Matrices,
    scale: float | None,
    default_scale: float,
    name: str,
    steps: int,
    d: int,
    seed: int,
) -> Tensor:
    """Return one d×d matrix per step.

    The words "random" and "identity" are scaled by `scale`, or by `default_scale` if that is None.
    "random" draws scale·(I + 0.3 G/√d) with Gaussian G: no two matrices commute, and none is
    symmetric.
    """
    if isinstance(matrices, Tensor):
        if scale is not None:
            raise InputError(f"{name} are explicit matrices: a scale of {scale} would be ignored")
        if matrices.shape not in ((d, d), (steps, d, d)):
            size = "×".join(map(str, matrices.shape))
            raise InputError(f"{name} must be {d}×{d} or {steps}×{d}×{d}, got {size}")
        return matrices.expand(steps, d, d)
    if steps * d * d > MAX_WEIGHTS:
        raise OutOfRangeError(
            f"{name} would be {steps}×{d}×{d} numbers, up to {MAX_WEIGHTS:,} are built: "
            "choose fewer steps or a smaller d"
        )
    scale = default_scale if scale is None else scale
    identity = torch.eye(d, dtype=torch.float64).expand(steps, d, d)
    if matrices == "identity":
        return scale * identity
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, d, d, generator=generator, dtype=torch.float64)
    return scale * (identity + 0.3 * noise / d**0.5)
