"""Bartlett's decomposition of a Wishart matrix: G = T Tᵀ, T lower triangular.

Entries   entries of T below the diagonal are standard normal; the square of entry i (from 0) of the
          diagonal is chi-squared with n − i degrees of freedom
Product   (T Tᵀ)_ij = Σ_{k ≤ min(i, j)} T_ik T_jk is computed only for j ≤ i: for d = 5, these are
          35 products instead of 125. Terms are added in the order of k, and omitted terms are 0,
          so that the result is equal, bit for bit, to that of the whole product
Draws     drawing gamma variates with torch takes more than half of the time of a batch; numpy takes
          a third of this time
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Below = Float[Tensor, "below batch"]
Squares = Float[Tensor, "d batch"]
Draw = Callable[[int, int, int, torch.dtype, torch.Generator], tuple[Below, Squares]]


def draw_with_torch(
    d: int, n: int, batch: int, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Below, Squares]:
    """Draw the entries below the diagonal, row by row, and the squares of the diagonal."""
    below = torch.randn(d * (d - 1) // 2, batch, generator=generator, dtype=dtype)
    freedom = (n - torch.arange(d, dtype=dtype)).unsqueeze(-1).expand(d, batch) / 2
    # A chi-squared variate is twice a gamma; the public distribution takes no generator.
    squares = 2 * torch._standard_gamma(freedom, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
    return below, squares


def draw_with_numpy(
    d: int, n: int, batch: int, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Below, Squares]:
    """Draw from the same distribution with numpy's generator, seeded by torch's generator."""
    seed, count = torch.randint(2**63 - 1, (4,), generator=generator).tolist(), d * (d - 1) // 2
    rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))
    single = dtype == torch.float32
    kind = np.float32 if single else np.float64
    squares = np.empty((d, batch), dtype=kind)
    for i in range(d):
        rng.standard_gamma((n - i) / 2, dtype=kind, out=squares[i])
    if single:  # which torch draws faster, vector by vector
        below = torch.randn(count, batch, generator=generator, dtype=dtype)
    else:
        below = torch.from_numpy(rng.standard_normal((count, batch)))
    return below, torch.from_numpy(squares).mul_(2)


def multiply_triangles(below: Below, diagonal: Squares) -> Float[Tensor, "d d batch"]:
    """Multiply T Tᵀ for every member of the batch."""
    d, batch = diagonal.shape
    rows = [below[i * (i - 1) // 2 : i * (i + 1) // 2] for i in range(d)]
    T = [[*rows[i].unbind(0), diagonal[i]] for i in range(d)]
    product = below.new_empty(d, d, batch)
    for i in range(d):
        for j in range(i + 1):
            entry = torch.mul(T[i][0], T[j][0], out=product[i, j])
            for k in range(1, j + 1):
                entry.addcmul_(T[i][k], T[j][k])
            if j < i:
                product[j, i] = entry
    return product
