"""Marks that tell tokens apart, so that a ReLU head can speak from each token to itself alone.

A score is bilinear between two tokens; with `own_token` as its gate the two are one token, and
score times value is a product of what that token holds. Token i = a·m + b, m = ⌈√n⌉, is marked by
the points a and b of m on a circle:

    p_i = (e^{2πia/m}, e^{2πib/m}) / √2,   ⟨p_i, p_i⟩ = 1,   ⟨p_i, p_j⟩ ≤ 1 − ½(1 − cos(2π/m))

The gate B(⟨p_i, p_j⟩ − 1) is 0 on the token itself, and on any other at most −B·½(1 − cos(2π/m)),
which is to be −(the largest score). So B, and rounding with it, grows like n; on one circle it
would grow like n². Tokens without a mark (p = 0) neither speak nor hear.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.transformer.layout import Where

MARK = 4
"""The length of a mark."""


def marks(n: int) -> Float[Tensor, "n 4"]:
    """One mark for each of n tokens."""
    index, digits = torch.arange(n), _digits(n)
    turns = torch.stack([index // digits, index % digits], dim=-1).double() / digits
    angles = 2 * math.pi * turns
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(2)


def own_token(
    bound: float, n: int, mark: Where = "p", one: Where = "one"
) -> dict[tuple[Where, Where], float]:
    """A gate that lets each of n marked tokens hear itself alone, while |score| ≤ bound."""
    if not (bound > 0 and n >= 1):
        raise InputError(
            f"own_token needs a positive bound and at least one token, got {bound}, {n}"
        )
    strength = bound / (0.5 * (1 - math.cos(2 * math.pi / _digits(n))))
    return {(mark, mark): strength, (one, one): -strength}


def _digits(n: int) -> int:
    """m with m² ≥ n, and at least two points on a circle."""
    return max(2, math.isqrt(n - 1) + 1)
