"""LISTA-CP: β ← S_θ(β − Dᵀ(Xβ − y)), D free in every layer (Chen et al. 2018; liu2025, (4.1))."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.unrolled import Unrolled, Weights, times, unit_step


class ListaCP(Unrolled):
    """D begins as ISTA's, X/L, for the `x` that is given."""

    def __init__(self, x: Float[Tensor, "n d"], layers: int, threshold: float = 0.1) -> None:
        super().__init__(layers, threshold)
        self.directions = nn.Parameter((unit_step(x) * x).repeat(layers, 1, 1))

    def move(self, k: int, beta: Weights, data: tuple[Tensor, Tensor]) -> Weights:
        x, y = data
        return beta - (times(x, beta) - y) @ self.directions[k]
