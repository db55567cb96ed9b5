"""Bounds for LISTA-VM (liu2025, Section 5, Appendix D): coherence, rates, numbers of examples.

Measurements are x_i = σ_i z_i with independent z of mean 0 and variance 1. G = DᵀX is the matrix
M XᵀX/(2n+1), and one step of the iteration is β ← S_θ(β − γ G (β − β*)).

Where |z| ≤ a, Hoeffding's inequality for z_i z_j ∈ [−a², a²] and the union over d(d−1)/2 pairs give

    P(max_{i≠j} |G_ij| > s) ≤ d² exp(−n s²/(2 a⁴ κ²))        for M = 2Σ⁻¹ and κ = σ_max/σ_min,

and log(d²/δ) ≤ 2 log(d/δ): the three inequalities of Lemma 3 hold with c = 1/(4 a⁴ κ²).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

SquareMatrix = Float[Tensor, "*batch d d"]


def pair_constant(bound: float = 1.0) -> float:
    """Return the c in P(|mean of z_i z_j| > s) ≤ 2 exp(−n c s²), a tail bound for |z| ≤ bound."""
    return 1 / (2 * bound**4)


def coherence_constant(bound: float = 1.0, condition: float = 1.0) -> float:
    """Return a c for which Lemma 3 holds if |z| ≤ bound, M = 2Σ⁻¹ and σ_max/σ_min ≤ condition."""
    return 1 / (4 * bound**4 * condition**2)


def deviation_width(among: int, delta: float, n: float, c: float) -> float:
    """Return √((log `among` − log δ)/(nc)), the width of the inequalities of Lemma 3."""
    return math.sqrt((math.log(among) - math.log(delta)) / (n * c))


def least_examples(S: int, d: int, delta: float, c: float) -> float:
    """Return N_0 = 8 (4S − 2)² (log d + log S − log δ)/c."""
    return 8 * (4 * S - 2) ** 2 * (math.log(d) + math.log(S) - math.log(delta)) / c


def rate_factor(
    n: float, S: int, d: int, delta: float, c: float, gamma: float, weight: float | None = None
) -> float:
    """Return e^(−α_n).

    `weight` multiplies the last term: γ in (D.3), the default, and 1 in Theorem 5.1.
    """
    pairs, entries = deviation_width(d, delta, n, c), deviation_width(S, delta, n, c)
    last = gamma if weight is None else weight
    return 1 - 2 / 3 * gamma + gamma * (2 * S - 1) * pairs + last * entries


def least_underdetermined(S: int, delta: float, c: float) -> int:
    """Return the least d > N_0.

    For smaller d, n ≥ N_0 implies at least as many examples as unknowns.
    """
    low, high = 1, 2
    while least_examples(S, high, delta, c) >= high:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if least_examples(S, middle, delta, c) < middle else (middle, high)
        )
    return high


def gram(X: Float[Tensor, "*batch n d"], M: Float[Tensor, "d d"]) -> SquareMatrix:
    """Compute DᵀX for D = X Mᵀ/(2n+1)."""
    return M @ X.mT @ X / (2 * X.shape[-2] + 1)


def coherence(G: SquareMatrix, S: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return three magnitudes of entries of G.

    They are the smallest and the largest of the first S entries on the diagonal, and the largest
    entry off the diagonal, σ_max.
    """
    diagonal = torch.diagonal(G, dim1=-2, dim2=-1)
    own = diagonal[..., :S].abs()
    off = (G - torch.diag_embed(diagonal)).abs().flatten(-2)
    return own.amin(-1), own.amax(-1), off.amax(-1)


def contraction(gamma: float, S: int, least: Tensor, most: Tensor) -> Tensor:
    """Compute e^(−c₂) = γ (2S − 1) σ_max + |1 − γ σ_min| of Lemma 1."""
    return gamma * (2 * S - 1) * most + (1 - gamma * least).abs()
