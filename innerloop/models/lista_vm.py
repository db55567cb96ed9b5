"""LISTA-VM: β ← S_θ(β − 1/(2n+1) M Xᵀ(Xβ − y)), M free in every layer (liu2025, (4.4)).

D = X Mᵀ/(2n+1) follows the measurements, so one set of parameters serves every X. With a support,
columns of X beyond it count as zero (LISTA-VM-SS, liu2025, Section 6) and β stays zero there
(Appendix D.2): for an M that is not diagonal these are two things, and rows and columns of M beyond
the support that are zero give both.

M = γ I + E/10: the law of X does not change under permutations and signs of its columns, so most of
what can be learned is γ, and the entries of E learn a tenth as fast. Large steps come last: an
early one that is too large for some X is amplified by all layers after it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.models.unrolled import Labels, Measurements, Unrolled, Weights, times

ENTRIES = 0.1


class ListaVM(Unrolled):
    """γ and θ begin on lines from the first layer to the last."""

    def __init__(
        self,
        d: int,
        layers: int,
        *,
        support: int | None = None,
        steps: tuple[float, float] = (0.4, 1.4),
        thresholds: tuple[float, float] = (0.3, 0.05),
    ) -> None:
        super().__init__(layers, torch.linspace(*thresholds, layers, dtype=torch.float64))
        if support is not None and not 1 <= support <= d:
            raise InputError(f"support must be in 1 … d={d}, got {support}")
        self.support = support
        self.steps = nn.Parameter(torch.linspace(*steps, layers, dtype=torch.float64))
        self.entries = nn.Parameter(torch.zeros(layers, d, d, dtype=torch.float64))

    def matrices(self) -> Float[Tensor, "layers d d"]:
        """M of every layer."""
        d, like = self.entries.shape[-1], self.steps
        inside = (torch.arange(d, device=like.device) < (self.support or d)).to(like)
        found = self.steps[:, None, None] * inside.diag() + ENTRIES * self.entries
        return found * inside * inside.unsqueeze(-1)

    def prepare(self, x: Measurements, y: Labels) -> tuple[Tensor, Tensor, Tensor]:
        x = x / (2 * x.shape[-2] + 1) ** 0.5
        return x.mT @ x, times(x.mT, y) / (2 * x.shape[-2] + 1) ** 0.5, self.matrices()

    def move(self, k: int, beta: Weights, data: tuple[Tensor, Tensor, Tensor]) -> Weights:
        gram, pull, matrices = data
        return beta - (times(gram, beta) - pull) @ matrices[k].mT
