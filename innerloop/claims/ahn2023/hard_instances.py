"""Covariances and matrices that broke some statement of ahn2023, or lie at the edge of one.

Every inequality of this source, and every correction, is tried on all of them, at n = 1 too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from innerloop.claims.searching import Family, diagonal, with_corner

HARD_MATRICES: dict[str, Family] = {
    "0 (theorem-4)": diagonal(0.0),
    "−I (distorted-view)": diagonal(-1.0),
    "−I/3, least at d = n = 1 (theorem-1)": diagonal(-1 / 3),
    "eigenvalues of both signs (distorted-view)": diagonal(-1.0, 1.0),
    "rank one (theorem-1)": diagonal(1.0, 0.0),
    "a quarter turn (distorted-view)": with_corner(0.0, -1.0, 1.0),
    "a shear (lemma-2)": with_corner(1.0, 30.0),
    "a nilpotent (theorem-4)": with_corner(0.0, 1.0),
    "10⁻³ I": diagonal(1e-3),
    "10³ I": diagonal(1e3),
}
HARD_COVARIANCES: dict[str, Family] = {
    "$Σ = I$ (theorem-1)": diagonal(1.0),
    "$Σ = 4I$ (theorem-4)": diagonal(4.0),
    "$Σ = diag(2, 1)$ (theorem-1)": diagonal(2.0, 1.0),
    "$Σ$ with 2 and 1 (lemma-8)": with_corner(2.0, 1.0, 1.0),
    "$Σ = D²$ of Section 5.3": diagonal(1.0, 1 / 4, 1 / 16),
    "$Σ$ of condition number 10⁴": diagonal(1.0, 1e-4),
    "$Σ = 10⁻³ I$": diagonal(1e-3),
    "$Σ = 10³ I$": diagonal(1e3),
    "$Σ = diag(1, 0)$, of rank one (theorem-1)": diagonal(1.0, 0.0),
}


def build_matrices(d: int, *, symmetric: bool = False) -> dict[str, Tensor]:
    """Build the hard matrices of a size, or those that are symmetric."""
    found = {name: build(d) for name, build in HARD_MATRICES.items()}
    return {name: M for name, M in found.items() if not symmetric or torch.equal(M, M.mT)}


def build_covariances(
    sizes: Sequence[int] = (1, 2), *, definite: bool = False
) -> list[tuple[str, Tensor]]:
    """Build the hard covariances of some sizes, or those with an inverse."""
    found = [(name, build(d)) for d in sizes for name, build in HARD_COVARIANCES.items()]
    return [(name, S) for name, S in found if not definite or float(torch.linalg.det(S)) > 0]
