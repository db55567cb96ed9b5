"""Products of layers under random rotations: what the proof of Theorem 5 takes out of a mean.

Printed    last sentences of B.3, steps 4 and 5: E_U[G(X_0, B_j + tU_Σ⁻¹S_jU_Σ)] =
           G(X_0, B_j + tE_U[U_Σ⁻¹S_jU_Σ]), U_Σ = Σ^½UΣ^{−½}, U uniformly orthogonal; and so of A_j
Corrected  the derivatives at t = 0 of the two sides, which is what the proof uses: that of G in the
           direction C is linear in C, so that a mean of C can be taken inside. G itself is not
           affine in B_j, nor in A_j if B_j ≠ 0: X_{j+1} enters the next layer twice. In B.2, where
           X does not move, one factor of G is affine in A_j, and the sentence is true
Tested     d = 2, where 2·32 rotations and reflections integrate what has degree below 32 in U
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.functional import jvp

from innerloop.claims.ahn2023.hard_instances import build_covariances, build_matrices
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.trials import Equality, as_erratum

ANGLES = 32
"""G of three layers has degree 8 in B_0 and 9 in A_0, so at most 18 in U."""


@dataclass(frozen=True, eq=False)
class Mean:
    """A mean over U of G, or of its derivative at t = 0, next to the value at the mean."""

    case: Case
    values: tuple[Tensor, Tensor]
    slopes: tuple[Tensor, Tensor]


def multiply_layers(X: Tensor, A: Sequence[Tensor], B: Sequence[Tensor]) -> Tensor:
    """G = X_0 ∏(I + M X_iᵀ A_i X_i) with (31), for X (d, n+1); A, B (…, d, d) of each layer."""
    mask = torch.ones(X.shape[-1], dtype=X.dtype)
    mask[-1] = 0.0
    G = X
    for matrix, move in zip(A, B, strict=True):
        keys = mask[:, None] * X.mT @ matrix @ X
        G, X = G + G @ keys, X + move @ X @ keys
    return G


def _list_rotations() -> Tensor:
    angles = torch.arange(ANGLES, dtype=torch.float64) * (2 * math.pi / ANGLES)
    c, s = angles.cos(), angles.sin()
    turns = torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=1)
    return torch.cat([turns, turns * torch.tensor([1.0, -1.0])])


def measure_mean(
    case: Case, X: Tensor, S: Tensor, weights: tuple[Tensor, Tensor], direction: Tensor, block: int
) -> Mean:
    """Measure along S_0 of B_0 (block 1) or R_0 of A_0 (block 0), layer 0 and t = 1."""
    values, V = torch.linalg.eigh(S)
    root, back = V * values.sqrt() @ V.mT, V / values.sqrt() @ V.mT

    def run(matrix: Tensor) -> Tensor:
        moved = [list(part) for part in weights]
        moved[block][0] = moved[block][0] + matrix
        return multiply_layers(X, *moved)

    def derive(matrix: Tensor) -> Tensor:
        return torch.as_tensor(jvp(run, torch.zeros_like(matrix), matrix)[1])

    U = _list_rotations()
    right = root @ U @ back
    turned = (right.mT if block == 0 else root @ U.mT @ back) @ direction @ right
    middle = turned.mean(0)
    return Mean(case, (run(turned).mean(0), run(middle)), (derive(turned).mean(0), derive(middle)))


def measure_means(generator: torch.Generator, trials: int) -> list[Mean]:
    """Measure a case by hand, then random points of the family and the hard instances."""
    eye, zero = torch.eye(2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    X = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    mirror = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    note = "$Σ = A_0 = A_1 = I$, $B_0 = 0$, $S_0 = diag(1, −1)$, $t = 1$, context (1, 0), "
    simple = torch.stack([eye, eye]), torch.stack([zero, zero])
    case = Case(layers=2, n=1, note=note + "query (1, 1), all entries of $G$")
    found = [measure_mean(case, X, eye, simple, mirror, 1)]
    hard = [
        (S, 1, M, name)
        for name, S in build_covariances((2,), definite=True)
        for M in build_matrices(2).values()
    ]
    drawn = [
        (draw_covariance(generator, 2, 10.0), draw_integer(generator, 1, 4), None, "")
        for _ in range(trials)
    ]
    for k, (S, n, M, name) in enumerate([*drawn, *hard]):
        layers = 2 + k % 2
        X = torch.linalg.cholesky(S) @ draw_normal(generator, 2, n + 1)
        a, b = draw_normal(generator, 2, layers, 1, 1) / 4
        weights = a * torch.linalg.inv(S), b * eye
        direction = draw_normal(generator, 2, 2) if M is None else M / M.norm().clamp(min=1.0)
        case = Case(layers=layers, n=n, note=name)
        found += [measure_mean(case, X, S, weights, direction, block) for block in (0, 1)]
    return found


def check_means(means: list[Mean]) -> Erratum:
    inside = "$C = U_Σ⁻¹S_jU_Σ$ added to $B_j$, or $U_ΣᵀR_jU_Σ$ to $A_j$"
    printed = Equality(f"$E_U[G(X_0, tC)] = G(X_0, tE_U[C])$ with {inside}")
    corrected = Equality(f"$E_U[dG(X_0, tC)/dt] = dG(X_0, tE_U[C])/dt$ at $t = 0$, {inside}")
    for mean in means:
        printed.add(*mean.values, mean.case)
        corrected.add(*mean.slopes, mean.case)
    return as_erratum("proof (B.3), last sentences of steps 4 and 5", printed, corrected)
