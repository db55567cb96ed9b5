"""LISTA-VM: β ← S_θ(β − 1/(2n+1) M Xᵀ(Xβ − y)), with a learned M per layer (liu2025, (4.4)).

D = X Mᵀ/(2n+1) depends on the measurements, so one set of parameters serves every X. If the support
is known (LISTA-VM-SS, liu2025, Section 6), the columns of X outside the support count as zero, and
β stays zero there (Appendix D.2). If M is not diagonal, these are two conditions. Both are met by
setting the rows and columns of M outside the support to zero.

M is parametrised as γ(I + E/10). The distribution of X is invariant under permutations and sign
changes of its columns, so γ matters most. The learned parameters are log γ and E; the factor 1/10
makes E learn more slowly. Without thresholds, K layers are a polynomial of degree K in XᵀX/(2n+1).
The smallest such polynomial on an interval is Chebyshev's, so the initial γ are the inverses of its
roots. Large and small values alternate, so that the components that one layer amplifies are damped
by the next layers before they overflow.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.models.unrolled import Labels, Measurements, Unrolled, Weights, matvec

ENTRY_SCALE = 0.1
"""Factor of the learned entries E in M."""
THRESHOLD_SHARE = 0.05
"""Initial θ as a share of γ."""


class ListaVM(Unrolled):
    """LISTA-VM, or LISTA-VM-SS if a support is set.

    Args:
        d: Number of features.
        steps: Initial γ of every layer; their number is the number of layers.
        support: Number of leading features that contain the support. None means that the support is
            unknown.
    """

    def __init__(
        self, d: int, steps: Float[Tensor, " layers"], *, support: int | None = None
    ) -> None:
        super().__init__(len(steps), THRESHOLD_SHARE * steps)
        if support is not None and not 1 <= support <= d:
            raise InputError(f"support must be in 1 … d={d}, got {support}")
        self.support = support
        self.log_steps = nn.Parameter(steps.log())
        self.entries = nn.Parameter(torch.zeros(len(steps), d, d, dtype=torch.float64))

    @property
    def steps(self) -> Float[Tensor, " layers"]:
        """The γ of every layer."""
        return self.log_steps.exp()

    def matrices(self) -> Float[Tensor, "layers d d"]:
        """Return the M of every layer."""
        d, like = self.entries.shape[-1], self.log_steps
        inside = (torch.arange(d, device=like.device) < (self.support or d)).to(like)
        full = self.steps[:, None, None] * (inside.diag() + ENTRY_SCALE * self.entries)
        return full * inside * inside.unsqueeze(-1)

    def prepare(self, x: Measurements, y: Labels) -> tuple[Tensor, Tensor, Tensor]:
        x = x / (2 * x.shape[-2] + 1) ** 0.5
        return x.mT @ x, matvec(x.mT, y) / (2 * x.shape[-2] + 1) ** 0.5, self.matrices()

    def update(self, k: int, beta: Weights, data: tuple[Tensor, Tensor, Tensor]) -> Weights:
        gram, pull, matrices = data
        return beta - (matvec(gram, beta) - pull) @ matrices[k].mT


def chebyshev_steps(least: float, largest: float, count: int) -> Float[Tensor, " count"]:
    """Return the inverse roots of Chebyshev's polynomial on an interval.

    Roots from the two ends of the interval alternate, which keeps intermediate products small.
    """
    angles = math.pi * (2 * torch.arange(count, dtype=torch.float64) + 1) / (2 * count)
    roots = (largest + least) / 2 + (largest - least) / 2 * angles.cos()
    return roots[_interleave(count)].reciprocal()


def _interleave(count: int) -> list[int]:
    """Order 0 … count − 1 so that each index of the first half is followed by its mirror image.

    If count is odd, the last index stays last.
    """
    if count == 1:
        return [0]
    if count % 2:
        return [*_interleave(count - 1), count - 1]
    return [index for k in _interleave(count // 2) for index in (k, count - 1 - k)]


def spectrum_edges(n: int, d: int) -> tuple[float, float]:
    """Return the ends of the nonzero spectrum of XᵀX/(2n+1), for large n, d and N(0, 1) entries of
    X."""
    ends = (abs(math.sqrt(d) - math.sqrt(n)), math.sqrt(d) + math.sqrt(n))
    return ends[0] ** 2 / (2 * n + 1), ends[1] ** 2 / (2 * n + 1)
