"""Quadrature over a Wishart matrix, exact for polynomials of its entries, at any n.

Rule       G = (1/n) Σ x xᵀ with n columns x ~ N(0, I) has the same distribution as T Tᵀ / n, where
           T (d×n) is lower triangular, with standard normals below the diagonal, and T_ii is
           chi-distributed with n − i + 1 degrees of freedom (Bartlett). This takes at most
           d(d+1)/2 random numbers instead of nd
Nodes      Gauss–Hermite for the normals, Gauss–Laguerre for the T_ii². A polynomial of G is even in
           each column of T, so a term that is odd in T_ii is also odd in a normal and sums to 0
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import roots_genlaguerre
from torch import Tensor

from innerloop.errors import InputError
from innerloop.theory.gaussian import MAX_POINTS


@lru_cache(maxsize=8)
def bartlett_rule(
    d: int, n: int, degree: int
) -> tuple[Float[Tensor, "points d d"], Float[Tensor, " points"]]:
    """Return matrices G and weights for expectations of polynomials in the entries of G.

    G is the average of n outer products of N(0, I) columns with d entries. The weighted sum over
    the matrices equals the expectation of every polynomial of at most this degree.
    """
    if d < 1 or n < 1 or degree < 0:
        raise InputError(f"expected d, n ≥ 1 and degree ≥ 0, got {d}, {n} and {degree}")
    places = [(i, j) for i in range(d) for j in range(min(i + 1, n))]
    rules = [_chi_rule(n - i, degree) if i == j else _normal_rule(degree) for i, j in places]
    total = int(np.prod([float(len(nodes)) for nodes, _ in rules]))
    if total > MAX_POINTS:
        raise InputError(
            f"degree {degree} of a Wishart matrix with d = {d}, n = {n} takes {total} points, more "
            f"than {MAX_POINTS}"
        )
    points = torch.cartesian_prod(*[nodes for nodes, _ in rules]).reshape(total, -1)
    masses = torch.cartesian_prod(*[mass for _, mass in rules]).reshape(total, -1)
    T = torch.zeros(total, d, min(d, n), dtype=torch.float64)
    for place, (i, j) in enumerate(places):
        T[:, i, j] = points[:, place]
    return T @ T.mT / n, masses.prod(dim=1)


def _normal_rule(degree: int) -> tuple[Tensor, Tensor]:
    """Return the Gauss rule for a standard normal that is exact up to degree 2 · degree."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(degree + 1)
    return torch.from_numpy(nodes), torch.from_numpy(mass / mass.sum())


def _chi_rule(freedom: int, degree: int) -> tuple[Tensor, Tensor]:
    """Return the Gauss rule for a chi variable that is exact up to `degree` in its square."""
    nodes, mass = roots_genlaguerre(degree // 2 + 1, freedom / 2 - 1)
    return torch.from_numpy(np.sqrt(2 * nodes)), torch.from_numpy(mass / mass.sum())
