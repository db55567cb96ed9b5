"""ALISTA: β ← S_θ(β − γ Wᵀ(Xβ − y)); γ and θ are learned, W is analytic (Liu and Chen 2019).

W minimises the Frobenius norm of WᵀX under the constraint ⟨w_i, x_i⟩ = 1 for every column:

    w_i = (XXᵀ)⁻¹ x_i / (x_iᵀ (XXᵀ)⁻¹ x_i)        n ≤ d

With a fixed X, as in the papers, W is computed once. Otherwise, it is computed for the X of every
instance.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import OutOfRangeError
from innerloop.models.unrolled import Labels, Measurements, Unrolled, Weights, matvec


def analytic_weight(x: Measurements) -> Measurements:
    """Compute the analytic W of every X."""
    n, d = x.shape[-2:]
    if n > d:
        raise OutOfRangeError(
            f"ALISTA needs at most as many examples as features, got {n} examples of {d}"
        )
    # Where n is near d, XXᵀ of a rare X is singular in float32.
    x64 = x.double()
    solved = torch.linalg.solve(x64 @ x64.mT, x64)
    return (solved / (x64 * solved).sum(dim=-2, keepdim=True)).to(x)


class Alista(Unrolled):
    """ALISTA with K layers and 2K learned parameters.

    Args:
        x: The fixed X, for which W is computed once. None computes W for the X of every instance.
        layers: Number of layers K.
        threshold: Initial θ of every layer.
        step: Initial γ of every layer.
    """

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
