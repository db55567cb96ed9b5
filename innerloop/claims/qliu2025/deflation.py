"""The power method with deflation on a matrix of known spectrum, and its errors."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.prompts import draw_normal


class DeflationErrors(NamedTuple):
    """Errors of Algorithm 1, component by component."""

    a: list[float]
    """‖v_η − p_η‖, v_η with the sign of p_η."""
    b: list[float]
    """|λ_η − λ̂_η|."""
    own: list[float]
    """‖u_η − p_η‖, u_η the leading eigenvector of the matrix that was iterated."""


def draw_matrix(generator: torch.Generator, spectrum: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a symmetric matrix with the given spectrum; its eigenvectors are columns."""
    d = len(spectrum)
    vectors, _ = torch.linalg.qr(draw_normal(generator, d, d))
    return vectors * spectrum @ vectors.mT, vectors


def draw_start(generator: torch.Generator, vector: Tensor, delta: float) -> Tensor:
    """Draw a unit vector whose inner product with `vector` is δ."""
    other = draw_normal(generator, len(vector))
    other = other - other.dot(vector) * vector
    if len(vector) == 1:
        return vector.clone()
    return delta * vector + math.sqrt(1 - delta**2) * other / other.norm()


def run_deflation(
    A: Tensor, vectors: Tensor, spectrum: Tensor, starts: list[Tensor], taus: list[int]
) -> DeflationErrors:
    """Run τ iterations for each component, then deflate A ← A − λ̂ p pᵀ."""
    found = DeflationErrors([], [], [])
    for eta, (first, tau) in enumerate(zip(starts, taus, strict=True)):
        values, basis = torch.linalg.eigh(A)
        # A^τ p up to its length: any number of iterations at once.
        p = basis @ ((values / values[-1]) ** tau * (basis.mT @ first))
        p = p / p.norm()
        value = (A @ p).norm()
        for kept, target in ((found.a, vectors[:, eta]), (found.own, basis[:, -1])):
            sign = 1.0 if target.dot(p) >= 0 else -1.0
            kept.append(float((sign * target - p).norm()))
        found.b.append(float((spectrum[eta] - value).abs()))
        A = A - value * torch.outer(p, p)
    return found


def printed_tau(epsilon: float, delta: float) -> int:
    """The printed number of iterations log(1/(ε₀δ))/ε₀, the most that the theorem allows."""
    return math.floor(math.log(1 / (epsilon * delta)) / epsilon)


def proper_tau(epsilon: float, delta: float, larger: float, smaller: float) -> int:
    """The corrected number of iterations log(1/(δ√ε₀))/log(λ_η/λ_{η+1}): then tan θ ≤ √ε₀."""
    if smaller <= 0:
        return 1
    return math.ceil(math.log(1 / (delta * math.sqrt(epsilon))) / math.log(larger / smaller))


def measure_pair(t: float) -> dict[str, float]:
    """Measure two inputs of one spectrum, and their second eigenvectors, ⟨p₂, v₂⟩ > 0."""
    A = [torch.tensor(x, dtype=torch.float64).diag() for x in ((3, 1 + t, 1), (3, 1, 1 + t))]
    p = torch.tensor((0.0, 1.0, 1.0), dtype=torch.float64) / math.sqrt(2)
    found = [torch.linalg.eigh(each).eigenvectors[:, 1] for each in A]
    found = [v * v.dot(p).sign() for v in found]
    roots = A[0].sqrt() - A[1].sqrt()
    return {
        "t": t,
        "inputs apart": float(torch.linalg.matrix_norm(A[0] - A[1], 2)),
        "X apart": float(roots.norm()),
        "targets apart": float((found[0] - found[1]).norm()),
    }
