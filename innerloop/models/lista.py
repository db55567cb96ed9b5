"""LISTA: β ← S_θ(W y + U β), where all matrices are learned (Gregor and LeCun 2010)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.unrolled import Unrolled, Weights, ista_step


class Lista(Unrolled):
    """LISTA, whose only input is y.

    Args:
        x: The X whose ISTA iteration gives the initial matrices.
        layers: Number of layers K.
        threshold: Initial θ of every layer.
    """

    def __init__(self, x: Float[Tensor, "n d"], layers: int, threshold: float = 0.1) -> None:
        super().__init__(layers, threshold)
        encoder = ista_step(x) * x.mT
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        self.encoders = nn.Parameter(encoder.repeat(layers, 1, 1))
        self.couplings = nn.Parameter((eye - encoder @ x).repeat(layers, 1, 1))

    def update(self, k: int, beta: Weights, data: tuple[Tensor, Tensor]) -> Weights:
        """Return W y + U β of layer k, before its threshold."""
        return data[1] @ self.encoders[k].mT + beta @ self.couplings[k].mT
