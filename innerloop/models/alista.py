"""ALISTA: β ← S_θ(β − γ Wᵀ(Xβ − y)); γ and θ are learned, W is analytic (Liu and Chen 2019).

W minimises the coherence with X in Frobenius norm, its columns held to ⟨w_i, x_i⟩ = 1:

    w_i = (XXᵀ)⁻¹ x_i / (x_iᵀ (XXᵀ)⁻¹ x_i)        n ≤ d

It is found once for the X that is given, as in the papers; or, without one, for every X anew.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import OutOfRange
from innerloop.models.unrolled import Labels, Measurements, Unrolled, Weights, times


def analytic_weight(x: Measurements) -> Measurements:
    """W of every X."""
    n, d = x.shape[-2:]
    if n > d:
        raise OutOfRange(f"ALISTA's weight needs at most as many examples as features, got {n}×{d}")
    # XXᵀ of a rare X is singular in float32 where n is near d.
    exact = x.double()
    solved = torch.linalg.solve(exact @ exact.mT, exact)
    return (solved / (exact * solved).sum(dim=-2, keepdim=True)).to(x)


class Alista(Unrolled):
    """2K numbers to learn."""

    weight: Tensor | None

    def __init__(
        self, x: Float[Tensor, "n d"] | None, layers: int, threshold: float = 0.1, step: float = 0.5
    ) -> None:
        super().__init__(layers, threshold)
        self.steps = nn.Parameter(torch.full((layers,), step, dtype=torch.float64))
        self.register_buffer("weight", None if x is None else analytic_weight(x))

    def prepare(self, x: Measurements, y: Labels) -> tuple[Tensor, Tensor, Tensor]:
        weight = analytic_weight(x) if self.weight is None else self.weight
        return weight.mT @ x, times(weight.mT.expand(*x.shape[:-2], *weight.mT.shape[-2:]), y), y

    def move(self, k: int, beta: Weights, data: tuple[Tensor, Tensor, Tensor]) -> Weights:
        gram, pull, _ = data
        return beta - self.steps[k] * (times(gram, beta) - pull)
