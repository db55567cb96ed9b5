"""All contexts of a quadrature rule at once, so that moments are exact sums, not samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.theory.gaussian import product_rule


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
    def description(self) -> str:
        told = ", ".join(f"{value:.3g}" for value in self.lam.tolist())
        return f"d = {len(self.lam)}, n = {self.x.shape[1]}, λ = ({told})"

    @property
    def size(self) -> tuple[int, int]:
        return (len(self.lam), self.x.shape[1])


def unit_matrix(j: int, d: int) -> Tensor:
    """The matrix E_{d+1,j}, j counted from 0."""
    matrix = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    matrix[d, j] = 1.0
    return matrix


def symmetric_unit_matrix(j: int, d: int) -> Tensor:
    """The symmetric matrix E_{d+1,j} + E_{j,d+1}."""
    return unit_matrix(j, d) + unit_matrix(j, d).mT
