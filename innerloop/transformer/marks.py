"""Marks that tell tokens apart, so that a ReLU head can be restricted to each token itself.

A score is bilinear between two tokens; with `gate_own_token` as its gate the two are one token,
and score times value is a product of that token's registers. Token i = a·m + b, m = ⌈√n⌉, is
marked by the points a and b of m on a circle:

    p_i = (e^{2πia/m}, e^{2πib/m}) / √2,   ⟨p_i, p_i⟩ = 1,   ⟨p_i, p_j⟩ ≤ 1 − ½(1 − cos(2π/m))

The gate B(⟨p_i, p_j⟩ − 1) is 0 on the token itself, and on any other at most −B·½(1 − cos(2π/m)),
which must be −(the largest score). So B, and with it rounding, grows like n; on one circle it
would grow like n². Tokens without a mark (p = 0) neither send nor receive.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.transformer.layout import Location

MARK_SIZE = 4
"""Entries of a mark."""


def make_marks(n: int) -> Float[Tensor, "n 4"]:
    """Return one mark for each of n tokens."""
    index, digits = torch.arange(n), _points_per_circle(n)
    turns = torch.stack([index // digits, index % digits], dim=-1).double() / digits
    angles = 2 * math.pi * turns
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(2)


def gate_own_token(
    bound: float, n: int, mark: Location = "p", one: Location = "one"
) -> dict[tuple[Location, Location], float]:
    """Gate that restricts each of n marked tokens to itself, while |score| ≤ bound."""
    if not (bound > 0 and n >= 1):
        raise InputError(
            f"gate_own_token needs a positive bound and at least one token, got {bound}, {n}"
        )
    strength = bound / find_gap(n)
    return {(mark, mark): strength, (one, one): -strength}


def find_gap(n: int) -> float:
    """Return 1 minus the largest product of two different marks of n tokens, or less."""
    return 0.5 * (1 - math.cos(2 * math.pi / _points_per_circle(n)))


def _points_per_circle(n: int) -> int:
    """Smallest m ≥ 2 with m² ≥ n: points on each circle."""
    return max(2, math.isqrt(n - 1) + 1)
