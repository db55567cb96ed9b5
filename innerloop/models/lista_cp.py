"""LISTA-CP: β ← S_θ(β − Dᵀ(Xβ − y)), D learned per layer (Chen et al. 2018; liu2025, (4.1))."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.unrolled import Unrolled, Weights, ista_step, matvec


class ListaCP(Unrolled):
    """LISTA-CP with K layers.

    Args:
        x: The X for which D starts as in ISTA: D = X/L with L = λmax(XᵀX).
        layers: Number of layers K.
        threshold: Initial θ of every layer.
    """

    def __init__(self, x: Float[Tensor, "n d"], layers: int, threshold: float = 0.1) -> None:
        super().__init__(layers, threshold)
        self.directions = nn.Parameter((ista_step(x) * x).repeat(layers, 1, 1))

    def update(self, k: int, beta: Weights, data: tuple[Tensor, Tensor]) -> Weights:
        x, y = data
        return beta - (matvec(x, beta) - y) @ self.directions[k]
