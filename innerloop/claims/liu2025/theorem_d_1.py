"""Theorem D.1: Theorem 5.1 as the appendix has it, with ‖β*‖₁ for b_β.

Printed    for n in [N_0, N], with probability 1 − 3δ, ‖β^(K+1)_{2n+1} − β*‖ ≤ c₁ e^(−α_n K) with
           c₁ = ‖β*‖₁, (D.3) for α_n, γ any positive constant less than 1.6. Called equivalent to
           Theorem 5.1, which has b_β, 1 − δ, γ ≤ 3/2 and no γ before the last term of α_n. The end
           of the proof has Lemma 3 with 1 − 2δ. β is rows d+1 … 2d+1: one too many
Tested     bounded measurements at n ≥ N_0, parameters that know X and β* (as Lemma 1's θ does), and
           parameters that a transformer can have, which are fixed before β* is drawn
Correction γ ≤ 3/2. With fixed parameters, b_β in place of ‖β*‖₁, as in Theorem 5.1: a β* below the
           first threshold is never seen (θ = 0 would see it, and then n < d is lost)
Beyond     no draw broke the bound for either probability: 1 − δ and 1 − 3δ cannot be told apart
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025.measurements import (
    LAWS,
    add_violation_rate,
    draw_sparse_vectors,
    iterate,
    sigmas,
)
from innerloop.claims.liu2025.theorem_5_1 import CASES, DELTA, K, draw_grams, step_and_thresholds
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

SCALES = (1.0, 1e-2, 1e-4)


@claim(
    "liu2025.theorem-D.1",
    "For n ≥ N_0 the error after K layers is at most ‖β*‖₁ e^(−α_n K), with probability 1 − 3δ.",
    where="Appendix D.1, Theorem D.1",
    kind="rate",
    quick={"draws": 300},
    full={"draws": 5_000},
    tiny={"draws": 10},
    falsified={
        "1 − γ in place of 1 − 2γ/3, and no widths": {"slope": 1.0, "widths": 0.0},
        "γ ≤ 1.6 keeps the rate real": {"most": 1.6},
    },
)
def theorem_d_1(
    generator: torch.Generator,
    *,
    draws: int,
    slope: float = 2 / 3,
    widths: float = 1.0,
    most: float = 1.5,
) -> Evidence:
    knowing = Inequality("‖β^(K+1) − β*‖ ≤ ‖β*‖₁ e^(−α_n K), θ from X and β*, 1 − 3δ")
    fixed = Inequality("the same for θ fixed before β* with ‖β*‖₁ ≤ b_β")
    bounded = Inequality("‖β^(K+1) − β*‖ ≤ b_β e^(−α_n K) for the same θ")
    real = Inequality("0 < e^(−α_n) for n ≥ N_0 and γ < 1.6")
    limited = Inequality("0 < e^(−α_n) for n ≥ N_0 and γ ≤ 3/2")
    missed = 0
    for law, condition, S, d in CASES:
        c = sparse.coherence_constant(LAWS[law], condition)
        n = math.ceil(sparse.least_examples(S, d, DELTA, c))
        sigma = sigmas(d, condition)
        G = 2 * draw_grams(generator, law, n, d, draws) * sigma / sigma[:, None]
        size, about = (condition, S, d), f"z {law}, σ₁/σ_d = {condition:g}, S = {S}, d = {d}"
        for gamma in (0.3, 0.7, 1.0):
            factor = sparse.rate_factor(n, S, d, DELTA, c, gamma)
            factor = 1 - slope * gamma + widths * (factor - 1 + 2 / 3 * gamma)
            bound = torch.tensor(max(factor, 0.0)).double() ** torch.arange(K + 1)
            step, thetas = step_and_thresholds(n, n, S, d, c, gamma)
            for scale in SCALES:
                star = scale * draw_sparse_vectors(generator, draws, d, S)
                told = f"{about}, n = {n}, γ = {gamma}, ‖β*‖₁ = {scale:g}, b_β = 1"
                broken = _over(G, star, step, _thresholds(G, star, step, S), scale * bound)
                missed += int(broken.sum())
                add_violation_rate(knowing, broken, 3 * DELTA, size, told)
                broken = _over(G, star, step, thetas, scale * bound)
                add_violation_rate(fixed, broken, 3 * DELTA, (*size, -scale), told)
                broken = _over(G, star, step, thetas, bound)
                add_violation_rate(bounded, broken, 3 * DELTA, size, told)
        for times in (1, 10, 100, 1000):
            told = f"{about}, n = {times} N_0, −e^(−α_n)"
            for found, gamma in ((real, 1.59), (limited, most - 1e-6)):
                value = sparse.rate_factor(times * n, S, d, DELTA, c, gamma)
                found.add(-value, 0.0, size=(*size, times), about=f"{told}, γ = {gamma:.4g}")
    return Evidence(
        parts=[
            Part(printed=knowing.check()),
            Part(printed=fixed.check(), corrected=bounded.check(), matters="result"),
            Part(printed=real.check(), corrected=limited.check(), matters="result"),
        ],
        numbers={
            "draws with θ from X and β*": knowing.cases * draws,
            "of them beyond the bound": missed,
        },
    )


def _thresholds(G: Tensor, star: Tensor, gamma: float, S: int) -> Tensor:
    """Thresholds of Lemma 1 with k − 1, instance by instance: steps × draws."""
    least, _, most = sparse.coherence(G, S)
    shrink = sparse.contraction(gamma, S, least, most)
    powers = torch.arange(K).unsqueeze(-1)
    return gamma * most * star.abs().sum(-1) * shrink**powers


def _over(G: Tensor, star: Tensor, gamma: float, thetas: Tensor, bound: Tensor) -> Tensor:
    """Draws whose error exceeds the bound after some number of layers."""
    errors = (iterate(G, star, gamma, thetas) - star).norm(dim=-1)
    return (errors[1:] > bound[1:, None] * (1 + 1e-9) + 1e-14).any(0)
