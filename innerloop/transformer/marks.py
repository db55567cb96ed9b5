"""Marks that distinguish tokens, so that a ReLU head can be restricted to each token itself.

A score is bilinear in two tokens. With `gate_own_token` as its gate, a token attends only to
itself, and score times value is a product of registers of this token. The mark of token
i = a·m + b, with m = ⌈√n⌉, consists of the points number a and b among m points on a circle:

    p_i = (e^{2πia/m}, e^{2πib/m}) / √2,   ⟨p_i, p_i⟩ = 1,   ⟨p_i, p_j⟩ ≤ 1 − ½(1 − cos(2π/m))

The gate B(⟨p_i, p_j⟩ − 1) is 0 on the token itself and at most −B·½(1 − cos(2π/m)) on other tokens.
This must be at most −(the largest score). So B, and with it the rounding error, is proportional to
n; with all tokens on one circle it would be proportional to n². Tokens without a mark (p = 0)
neither send nor receive anything.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.transformer.layout import Location

MARK_SIZE = 4
"""Number of entries of a mark."""


def make_marks(n: int) -> Float[Tensor, "n 4"]:
    """Return one mark for each of n tokens."""
    index, digits = torch.arange(n), _points_per_circle(n)
    turns = torch.stack([index // digits, index % digits], dim=-1).double() / digits
    angles = 2 * math.pi * turns
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(2)


def gate_own_token(
    bound: float, n: int, mark: Location = "p", one: Location = "one"
) -> dict[tuple[Location, Location], float]:
    """Return a gate that restricts each of n marked tokens to itself, while |score| ≤ bound."""
    if not (bound > 0 and n >= 1):
        raise InputError(
            f"gate_own_token needs a positive bound and at least one token, got {bound}, {n}"
        )
    strength = bound / find_gap(n)
    return {(mark, mark): strength, (one, one): -strength}


def find_gap(n: int) -> float:
    """Return a lower bound of 1 − ⟨p_i, p_j⟩ over pairs of different tokens among n."""
    return 0.5 * (1 - math.cos(2 * math.pi / _points_per_circle(n)))


def _points_per_circle(n: int) -> int:
    """Return the number of points on each circle: the smallest m ≥ 2 with m² ≥ n."""
    return max(2, math.isqrt(n - 1) + 1)
