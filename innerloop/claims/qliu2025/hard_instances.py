"""Spectra, matrices and angles on which statements of qliu2025 broke, or are tight.

Every inequality of this source, and every correction, is tried on one of these pools.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _follow(first: tuple[float, ...], then: float, by: float = 1.0) -> Callable[[int], Tensor]:
    """Values that begin with `first` and go on by the factor `then`, all times `by`."""

    def build(d: int) -> Tensor:
        values = list(first)
        while len(values) < d:
            values.append(then * values[-1])
        return by * torch.tensor(values[:d], dtype=torch.float64)

    return build


HARD_SPECTRA: dict[str, Callable[[int], Tensor]] = {
    "the start is tilted by more than δ (Theorem 7, the sign)": _follow((4.0, 2.0), 0.5),
    "λ₃ near λ₂ (Theorem 7)": _follow((3.0, 1.0, 0.9999), 0.5),
    "rank one": _follow((1.0, 0.0), 1.0),
    "rank two (Theorem 7, the product)": _follow((10.0, 9.0, 0.0), 1.0),
    "equal past the first": _follow((2.0, 1.0), 1.0),
    "the first two nearly equal": _follow((1.0, 1 - 1e-6, 0.5), 0.5),
    "small gaps": _follow((1.0,), 0.999),
    "nearly singular": _follow((1.0,), 1e-3),
    "scale 10^−6": _follow((1.0,), 0.5, 1e-6),
    "scale 10^12": _follow((1.0,), 0.2, 1e12),
}
"""Eigenvalues of XXᵀ by name, from d; falling, some equal."""


def _scale_identity(by: float) -> Callable[[int], Tensor]:
    return lambda d: by * torch.eye(d, dtype=torch.float64)


HARD_MATRICES: dict[str, Callable[[int], Tensor]] = {
    "zero": _scale_identity(0.0),
    "the identity": _scale_identity(1.0),
    "minus the identity (Definition 4)": _scale_identity(-1.0),
    "scale 10^4": _scale_identity(1e4),
    "scale 10^−4": _scale_identity(1e-4),
    "rank one": lambda d: torch.ones(d, d, dtype=torch.float64),
    "a shear (definition of Attn)": lambda d: torch.ones(d, d, dtype=torch.float64).triu(),
    "nearly singular": lambda d: _follow((1.0,), 1e-3)(d).diag(),
}
"""Weights, streams or examples by name, from d."""

HARD_ANGLES: dict[str, Callable[[int], Tensor]] = {
    "half of the range": lambda d: torch.tensor(0.25 / d, dtype=torch.float64),
    "the edge of the range": lambda d: torch.tensor(0.5 / d * (1 - 1e-9), dtype=torch.float64),
    "nearly nothing": lambda d: torch.tensor(1e-300, dtype=torch.float64),
}
"""δ < 1/(2d) of Lemma 8 by name, from d."""
