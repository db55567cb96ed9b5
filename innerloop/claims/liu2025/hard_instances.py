"""Matrices on which statements of this source broke, or are tight, for every search to try."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def _eye(d: int) -> Tensor:
    return torch.eye(d, dtype=torch.float64)


def _one_large(d: int) -> Tensor:
    X = _eye(d)
    X[0] *= 1e3
    return X


def _nearly_parallel(d: int) -> Tensor:
    return torch.ones(d, d, dtype=torch.float64) + 1e-3 * _eye(d)


def _tightest(d: int) -> Tensor:
    G = 0.5 * _eye(d)
    G[0, -1] = -0.25 if d > 1 else 0.5
    return G


HARD_MATRICES: dict[str, Callable[[int], Tensor]] = {
    "x = 10 (Lemma 4)": lambda d: 10 * _eye(d),
    "x = 10⁶ (Proposition 1)": lambda d: 1e6 * _eye(d),
    "one example a thousand times as long": _one_large,
    "examples that are nearly parallel": _nearly_parallel,
    "the tightest DᵀX of Lemma 1": _tightest,
}
"""By name, from d."""


class Examples(NamedTuple):
    """Rows of a hard matrix for examples, β* = e₁, M = I/‖X‖², and a B that no product exceeds."""

    X: Tensor
    star: Tensor
    M: Tensor
    bound: float


def list_hard_examples(*sizes: int) -> list[Examples]:
    """List the hard matrices of these sizes as examples of sparse recovery."""
    found = []
    for build in HARD_MATRICES.values():
        for d in sizes:
            norm = float(torch.linalg.matrix_norm(build(d), 2))
            found.append(Examples(build(d), _eye(d)[0], _eye(d) / norm**2, 1e3 * norm))
    return found


def list_hard_grams(S: int, off: float = 0.0) -> list[tuple[str, Tensor]]:
    """List matrices DᵀX with the signs and the pattern of the hard ones, by name.

    Their diagonal is 1, and entries off it are `off` at most: by default 1/(2S−1), which is what
    (D.2) allows at γ = 1.
    """
    found, most = [], off or 1 / (2 * S - 1)
    for name, build in HARD_MATRICES.items():
        for d in (S + 1, S + 3):
            rest = build(d) - torch.diag(build(d).diagonal())
            found.append((name, _eye(d) + most * rest / rest.abs().max().clamp_min(1e-12)))
    return found
