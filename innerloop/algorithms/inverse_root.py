"""G^(−1/2) as a sum of shifted inverses, by the midpoint rule.

    G^(−1/2)  =  2/π ∫₀^{π/2} √c cos⁻²θ (G + c tan²θ I)⁻¹ dθ
              ≈  Σ_j (√c/m) cos⁻²θ_j (G + c tan²θ_j I)⁻¹,   θ_j = (2j − 1)π/(4m),  j = 1 … m

Error  on an eigenvalue c s² the integrand is 1/√c over s² cos²θ + sin²θ, whose Fourier coefficients
       in 2θ are powers of (1 − s)/(1 + s) over s. The rule depends only on every 2m-th
       coefficient, with alternating signs: its result is (1 − ω)/(1 + ω) times the true value, with
       ω = ((1 − s)/(1 + s))^2m. For a spectrum in [l, u] and c = √(lu) the error is largest at
       both ends, where s = (u/l)^(±1/4)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError


class InverseRoot(NamedTuple):
    """The shifts c tan²θ_j, their weights, and the largest relative error.

    The sum never exceeds the true value.
    """

    shifts: Float[Tensor, " terms"]
    weights: Float[Tensor, " terms"]
    error: float


def inverse_root(terms: int, least: float, most: float) -> InverseRoot:
    """Return an approximation of G^(−1/2) by `terms` terms, for spectra of G in [least, most]."""
    if terms < 1 or not 0 < least <= most < math.inf:
        raise InputError(
            "expected at least one term and a spectrum of positive, finite numbers, "
            f"got {terms} terms and a spectrum from {least} to {most}"
        )
    centre = math.sqrt(least * most)
    angles = (2 * torch.arange(terms, dtype=torch.float64) + 1) * math.pi / (4 * terms)
    end = (most / least) ** 0.25
    omega = ((end - 1) / (end + 1)) ** (2 * terms)
    return InverseRoot(
        shifts=centre * angles.tan().square(),
        weights=math.sqrt(centre) / terms / angles.cos().square(),
        error=2 * omega / (1 + omega),
    )
