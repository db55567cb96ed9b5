"""Quadrature over independent standard normals, exact for polynomials.

A Gauss–Hermite rule with m nodes integrates every polynomial of degree 2m − 1 in one variable. The
product rule is exact up to this degree in each variable and has m^variables points. It integrates a
polynomial of tokens directly from its definition, without formulas for moments.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError

MAX_POINTS = 2_000_000
"""Largest number of points of a quadrature rule; a larger rule raises an error."""


def product_rule(
    variables: int, degree: int
) -> tuple[Float[Tensor, "points variables"], Float[Tensor, " points"]]:
    """Return points and weights for expectations of polynomials over N(0, I).

    The weighted sum equals the expectation of every polynomial of at most this degree in each
    variable.
    """
    if variables < 1 or degree < 0:
        raise InputError(f"expected variables ≥ 1 and degree ≥ 0, got {variables} and {degree}")
    count = degree // 2 + 1
    if count**variables > MAX_POINTS:
        raise InputError(
            f"degree {degree} in {variables} variables takes {count}^{variables} points, more than "
            f"{MAX_POINTS}"
        )
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    one, mass = torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())
    points = torch.cartesian_prod(*[one] * variables).reshape(-1, variables)
    masses = torch.cartesian_prod(*[mass] * variables).reshape(-1, variables)
    return points, masses.prod(dim=1)
