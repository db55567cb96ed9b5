"""Lemma 3: D = X(M^V)ᵀ/(2N+1) is nearly incoherent with X.

Printed    there is an M^V (the proof: 2/σ_d² · I, σ_d the least deviation) such that with
           probability 1 − 3δ, a = √((log S − log δ)/(Nc)), b = √((log d − log δ)/(Nc)):
           min_{i∈𝕊} |D_iᵀX_i| ≥ N/(N+2) (1 − a),   max_{i∈𝕊} |D_iᵀX_i| ≤ N/(N+2) (1 + a),
           max_{i≠j} |D_iᵀX_i| ≤ b, with c a positive constant; covariance diag(σ₁², …, σ_d²)
Tested     three bounded laws, isotropic and σ₁/σ_d = 2 and 4, N from 50 to 3,000; c from
           Hoeffding's inequality (theory/sparse.py), one for all N, d, S and δ. Each inequality's
           share of failures against δ. The proof's step from one pair to all pairs, with the c of a
           single pair (its exact binomial tail)
Correction M^V = 2Σ⁻¹, D_iᵀX_j in the third, and log d² for log d where c is that of the tail bound
Beyond     c = 1/(4a⁴κ²) works for |z| ≤ a and κ = σ₁/σ_d: c is no universal constant
Note       N/(N+2) stands where the proof has 2N/(2N+1): too small as an upper bound, by 3/(2N+1),
           which a outweighs as soon as 3δ < 1. The end of D.1 quotes this lemma with 1 − 2δ
"""

from __future__ import annotations

import math

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.liu2025.measurements import LAWS, add_violation_rate, draw_entries, sigmas
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

S, DELTAS, CONDITIONS = 2, (0.3, 0.05), (1.0, 2.0, 4.0)
FORMS = (
    "min_{i∈𝕊} |D_iᵀX_i| ≥ N/(N+2) (1 − a), M^V = 2/σ_d² I",
    "max_{i∈𝕊} |D_iᵀX_i| ≤ N/(N+2) (1 + a), M^V = 2/σ_d² I",
    "the same with M^V = 2Σ⁻¹",
    "max_{i≠j} |D_iᵀX_i| ≤ b",
    "max_{i≠j} |D_iᵀX_j| ≤ b, M^V = 2Σ⁻¹",
    "min and max of D_iᵀX_i with M^V = 2Σ⁻¹, both at once, and the third: 1 − 3δ",
)


@claim(
    "liu2025.lemma-3",
    "With M of the order of the inverse covariance, D = XMᵀ/(2N+1) satisfies three coherence "
    "inequalities with X, with high probability.",
    where="Appendix D.1, Lemma 3",
    kind="inequality",
    quick={"draws": 300, "longest": 2_000, "pairs": 60},
    full={"draws": 5_000, "longest": 10_000, "pairs": 2_000},
    tiny={"draws": 40, "longest": 200, "pairs": 12},
    falsified={
        "widths a and b ten times smaller": {"width": 0.1},
        "three times fewer failures than pairs have": {"pairs_width": 0.7},
    },
)
def lemma_3(
    generator: torch.Generator,
    *,
    draws: int,
    longest: int,
    pairs: int,
    width: float = 1.0,
    pairs_width: float = 1.0,
) -> Evidence:
    found = [Inequality(form) for form in FORMS]
    table = []
    for law, bound in LAWS.items():
        for N in (50, longest):
            for condition in CONDITIONS:
                _add_setting(generator, found, table, law, bound, N, condition, draws, width)
    checks = [each.check() for each in found]
    union, all_pairs, share = _union(generator, pairs, pairs_width)
    c = sparse.coherence_constant()
    return Evidence(
        parts=[
            Part(printed=checks[0]),
            Part(printed=checks[1], corrected=checks[2]),
            Part(printed=checks[3], corrected=checks[4]),
            Part(printed=checks[5]),
            Part(printed=union, corrected=all_pairs),
        ],
        numbers={
            "share of draws that break the third with the c of one pair, δ = 0.1": share,
            "N_0 for d = 20, S = 3, δ = 0.1, z = ±1 (the paper runs N = 10)": math.ceil(
                sparse.least_examples(3, 20, 0.1, c)
            ),
        },
        table=table,
    )


def _add_setting(
    generator: torch.Generator,
    found: list[Inequality],
    table: list,
    law: str,
    bound: float,
    N: int,
    condition: float,
    draws: int,
    width: float,
) -> None:
    d = 6
    sigma, c = sigmas(d, condition), sparse.coherence_constant(bound, condition)
    batch = min(draws, 4_000_000 // (N * d))
    G = torch.cat(
        [
            sparse.gram(sigma * draw_entries(generator, law, batch, N, d), torch.eye(d).double())
            for _ in range(-(-draws // batch))
        ]
    )[:draws]
    printed = [2 * part for part in sparse.coherence(G, S)]  # σ_d = 1
    whitened = sparse.coherence(2 * G / sigma[:, None] ** 2, S)
    everywhere = 2 * torch.diagonal(G, dim1=-2, dim2=-1).abs().amax(-1)
    for delta in DELTAS:
        a, b = (width * sparse.deviation_width(among, delta, N, c) for among in (S, d))
        low, high = N / (N + 2) * (1 - a), N / (N + 2) * (1 + a)
        size = (condition, N, bound)
        about = f"z {law}, σ₁/σ_d = {condition:g}, N = {N}, d = {d}, S = {S}, δ = {delta}"
        joint = (whitened[0] < low) | (whitened[1] > high) | (whitened[2] > b)
        for k, broken, stated in (
            (0, printed[0] < low, delta),
            (1, printed[1] > high, delta),
            (2, whitened[1] > high, delta),
            (3, everywhere > b, delta),
            (4, whitened[2] > b, delta),
            (5, joint, 3 * delta),
        ):
            told = f"{about}, largest diagonal {float(printed[1].mean()):.3g} on average"
            add_violation_rate(found[k], broken, stated, size, told if k in (1, 3) else about)
    table.append(
        {
            "law of z": law,
            "σ₁/σ_d": condition,
            "N": N,
            "mean of max D_iᵀX_i, M = 2/σ_d² I": float(printed[1].mean()),
            "the same, M = 2Σ⁻¹": float(whitened[1].mean()),
            "mean of max |D_iᵀX_j|, M = 2Σ⁻¹": float(whitened[2].mean()),
        }
    )


def _union(generator: torch.Generator, draws: int, width: float) -> tuple[Check, Check, float]:
    """One pair's tail at c = 1/2, and the bound over all pairs with log d and with log d²."""
    from scipy.stats import binom

    N, d, delta, c = 1_000, 100, 0.1, sparse.pair_constant()
    one = sparse.deviation_width(d, delta, N, c)
    both = sparse.deviation_width(d * d, delta, N, c)
    tail = 2 * float(binom.sf(math.floor(N * (1 + one) / 2), N, 0.5))
    z = draw_entries(generator, "signs", draws, N, d)
    most = sparse.coherence(2 * sparse.gram(z, torch.eye(d).double()), S)[2]
    about = (
        f"z = ±1, N = {N}, d = {d}, δ = {delta}, c = 1/2: a pair exceeds b = {one:.4f} with "
        f"probability {tail:.2g} ≤ exp(−Ncb²) = {math.exp(-N * c * one**2):.2g}, some pair often"
    )
    printed = Inequality("max_{i≠j} |D_iᵀX_j| ≤ √((log d − log δ)/(Nc)), c that of one pair")
    share = add_violation_rate(printed, most > one, delta, (N, d), about)
    corrected = Inequality("max_{i≠j} |D_iᵀX_j| ≤ √((2 log d − log δ)/(Nc)), the same c")
    add_violation_rate(corrected, most > width * both, delta, (N, d), f"N = {N}, d = {d}")
    return printed.check(), corrected.check(), share
