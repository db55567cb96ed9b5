"""LISTA-VM: β ← S_θ(β − 1/(2n+1) M Xᵀ(Xβ − y)), M free in every layer (liu2025, (4.4)).

D = X Mᵀ/(2n+1) follows the measurements, so one set of parameters serves every X. With a support,
columns of X beyond it count as zero (LISTA-VM-SS, liu2025, Section 6) and β stays zero there
(Appendix D.2): for an M that is not diagonal these are two things, and rows and columns of M beyond
the support that are zero give both.

M = γ(I + E/10): the law of X does not change under permutations and signs of its columns, so most
of what can be learned is γ, of which the logarithm is learned, and entries of E learn a tenth as
fast. Without thresholds K layers are a polynomial of degree K in XᵀX/(2n+1), and the smallest on an
interval is Chebyshev's: so γ begins as the inverse of its roots, large ones between small ones,
lest what one layer amplifies overflows before another takes it back.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.models.unrolled import Labels, Measurements, Unrolled, Weights, times

ENTRIES = 0.1
SHARE = 0.05
"""θ begins as so much of γ."""


class ListaVM(Unrolled):
    """`steps` are γ of every layer to begin with."""

    def __init__(
        self, d: int, steps: Float[Tensor, " layers"], *, support: int | None = None
    ) -> None:
        super().__init__(len(steps), SHARE * steps)
        if support is not None and not 1 <= support <= d:
            raise InputError(f"support must be in 1 … d={d}, got {support}")
        self.support = support
        self.log_steps = nn.Parameter(steps.log())
        self.entries = nn.Parameter(torch.zeros(len(steps), d, d, dtype=torch.float64))

    @property
    def steps(self) -> Float[Tensor, " layers"]:
        """γ of every layer."""
        return self.log_steps.exp()

    def matrices(self) -> Float[Tensor, "layers d d"]:
        """M of every layer."""
        d, like = self.entries.shape[-1], self.log_steps
        inside = (torch.arange(d, device=like.device) < (self.support or d)).to(like)
        found = self.steps[:, None, None] * (inside.diag() + ENTRIES * self.entries)
        return found * inside * inside.unsqueeze(-1)

    def prepare(self, x: Measurements, y: Labels) -> tuple[Tensor, Tensor, Tensor]:
        x = x / (2 * x.shape[-2] + 1) ** 0.5
        return x.mT @ x, times(x.mT, y) / (2 * x.shape[-2] + 1) ** 0.5, self.matrices()

    def move(self, k: int, beta: Weights, data: tuple[Tensor, Tensor, Tensor]) -> Weights:
        gram, pull, matrices = data
        return beta - (times(gram, beta) - pull) @ matrices[k].mT


def chebyshev_steps(least: float, largest: float, count: int) -> Float[Tensor, " count"]:
    """The inverse roots of Chebyshev's polynomial on an interval, in an order that does not
    amplify: of the two halves, mirrored, one after the other."""
    places = math.pi * (2 * torch.arange(count, dtype=torch.float64) + 1) / (2 * count)
    roots = (largest + least) / 2 + (largest - least) / 2 * places.cos()
    return roots[_mixed(count)].reciprocal()


def _mixed(count: int) -> list[int]:
    """0 … count − 1, each of the first half followed by its mirror image; an odd one comes last."""
    if count == 1:
        return [0]
    if count % 2:
        return [*_mixed(count - 1), count - 1]
    return [place for k in _mixed(count // 2) for place in (k, count - 1 - k)]


def spectrum(n: int, d: int) -> tuple[float, float]:
    """Where the eigenvalues of XᵀX/(2n+1) that are not 0 lie for large n and d, X of N(0, 1)."""
    ends = (abs(math.sqrt(d) - math.sqrt(n)), math.sqrt(d) + math.sqrt(n))
    return ends[0] ** 2 / (2 * n + 1), ends[1] ** 2 / (2 * n + 1)
