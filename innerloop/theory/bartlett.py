"""Quadrature over a Wishart matrix, exact for polynomials of its entries, at any n.

Rule       G = T Tᵀ / n has the law of (1/n) Σ x xᵀ, n columns x ~ N(0, I), when T (d×n, below the
           diagonal) has standard normals below its diagonal and chi-distributed T_ii with n − i + 1
           degrees of freedom on it (Bartlett): d(d+1)/2 numbers, or fewer, instead of nd
Nodes      Gauss–Hermite for the normals, Gauss–Laguerre for the T_ii². A polynomial of G is even in
           each column of T, so a term odd in T_ii is odd in a normal as well, and sums to 0
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
    """Matrices G and weights whose weighted sum is the expectation of any polynomial of at most
    this degree in the entries of G, the average of n outer products of N(0, I) columns."""
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
    """Gauss rule for a standard normal, exact up to degree 2 · degree."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(degree + 1)
    return torch.from_numpy(nodes), torch.from_numpy(mass / mass.sum())


def _chi_rule(freedom: int, degree: int) -> tuple[Tensor, Tensor]:
    """Gauss rule for a chi-distributed variable, exact up to `degree` in its square."""
    nodes, mass = roots_genlaguerre(degree // 2 + 1, freedom / 2 - 1)
    return torch.from_numpy(np.sqrt(2 * nodes)), torch.from_numpy(mass / mass.sum())
