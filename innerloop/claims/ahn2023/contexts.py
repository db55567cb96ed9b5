"""All contexts of a quadrature rule at once, so that moments are exact sums, not samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.theory.gaussian import product_rule

SIZES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (3, 1), (2, 3), (3, 2))
"""Pairs (d, n) whose expectations are sums over at most 3⁹ prompts, larger ones last."""


class Contexts(NamedTuple):
    """All prompts of a quadrature rule: x (points, n, d), w, labels, C and the rule's weights."""

    lam: Tensor
    x: Tensor
    w: Tensor
    y: Tensor
    C: Tensor
    mass: Tensor

    @classmethod
    def from_spectrum(cls, lam: Tensor, n: int) -> Contexts:
        d = len(lam)
        points, mass = product_rule(d * (n + 1), 5)
        drawn = points.reshape(-1, n + 1, d)
        x, w = drawn[:, :n] * lam.sqrt(), drawn[:, n]
        y = (x @ w.unsqueeze(-1)).squeeze(-1)
        z = torch.cat([x, y.unsqueeze(-1)], dim=-1)
        return cls(lam, x, w, y, z.mT @ z / n, mass)

    def mean(self, values: Tensor) -> Tensor:
        return torch.tensordot(self.mass, values, dims=1)

    @property
    def size(self) -> tuple[int, int]:
        return (len(self.lam), self.x.shape[1])


def draw_spectrum(generator: torch.Generator, d: int, alike: bool) -> Tensor:
    """Draw λ from 0.2 to 2.2, or return ones; both take as many random numbers."""
    lam = 0.2 + 2 * torch.rand(d, generator=generator, dtype=torch.float64)
    return torch.ones_like(lam) if alike else lam


def enumerate_contexts(generator: torch.Generator, alike: bool, shortest: int) -> list[Contexts]:
    """Enumerate all prompts of the shortest sizes, with λ = 1 or random λ."""
    return [
        Contexts.from_spectrum(draw_spectrum(generator, d, alike), n) for d, n in SIZES[:shortest]
    ]


def unit_matrix(j: int, d: int) -> Tensor:
    """The matrix E_{d+1,j}, j counted from 0."""
    matrix = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    matrix[d, j] = 1.0
    return matrix


def symmetric_unit_matrix(j: int, d: int) -> Tensor:
    """The symmetric matrix E_{d+1,j} + E_{j,d+1}."""
    return unit_matrix(j, d) + unit_matrix(j, d).mT
