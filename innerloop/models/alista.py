"""ALISTA: β ← S_θ(β − γ Wᵀ(Xβ − y)); γ and θ are learned, W is analytic (Liu and Chen 2019).

W minimises the coherence with X in Frobenius norm, its columns held to ⟨w_i, x_i⟩ = 1:

    w_i = (XXᵀ)⁻¹ x_i / (x_iᵀ (XXᵀ)⁻¹ x_i)        n ≤ d

It is computed once for a given X, as in the papers; or, without one, for every X.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import OutOfRangeError
from innerloop.models.unrolled import Labels, Measurements, Unrolled, Weights, matvec


def analytic_weight(x: Measurements) -> Measurements:
    """The analytic W of every X."""
    n, d = x.shape[-2:]
    if n > d:
        raise OutOfRangeError(
            f"ALISTA's weight needs at most as many examples as features, got {n}×{d}"
        )
    # Where n is near d, XXᵀ of a rare X is singular in float32.
    x64 = x.double()
    solved = torch.linalg.solve(x64 @ x64.mT, x64)
    return (solved / (x64 * solved).sum(dim=-2, keepdim=True)).to(x)


class Alista(Unrolled):
    """ALISTA with K layers, which has 2K parameters to learn."""

    weight: Tensor | None

    def __init__(
        self, x: Float[Tensor, "n d"] | None, layers: int, threshold: float = 0.1, step: float = 0.5
    ) -> None:
        super().__init__(layers, threshold)
        self.steps = nn.Parameter(torch.full((layers,), step, dtype=torch.float64))
        self.register_buffer("weight", None if x is None else analytic_weight(x))

    def prepare(self, x: Measurements, y: Labels) -> tuple[Tensor, Tensor, Tensor]:
        weight = analytic_weight(x) if self.weight is None else self.weight
        return weight.mT @ x, matvec(weight.mT.expand(*x.shape[:-2], *weight.mT.shape[-2:]), y), y

    def update(self, k: int, beta: Weights, data: tuple[Tensor, Tensor, Tensor]) -> Weights:
        gram, pull, _ = data
        return beta - self.steps[k] * (matvec(gram, beta) - pull)
