"""Proposition 2: on the event of Lemma 3 the error falls like e^(−α_n K).

Printed    on the event A (D.4) and for n ≥ N_0, ‖β^(K+1) − β*‖ ≤ c₁ e^(−α_n K), c₁ = ‖β*‖₁, for any
           γ < 1.6; the proof takes Lemma 1's θ = γσ_max c₁ e^(−c₂(k−2)), needs γ max D_iᵀX_i ≤ 1
           (D.11), and finds ((n+2)/n)/(1 + a) ≥ 2/(1 + …) ≥ 1.6 (D.14)
Tested     every DᵀX on A, not only those of random X: diagonal within its bounds, the other entries
           anywhere in ±b, at random and at the corners; c = 1/4, n from N_0 to 1,000 N_0, K to 12
Correction θ = γσ_max c₁ e^(−c₂(k−1)): with k − 2 the first threshold can exceed β* itself.
           γ ≤ ((n+2)/n)/(1 + a), which is at most 1 + 2/n, and 0.90 at n = N_0 for S = 1; the
           factor 2 in the proof's chain has no source. e^(−α_n) > 0 needs γ ≤ 3/2
Note       as printed, A bounds |D_iᵀX_i| for i ≠ j by b, which at n ≥ N_0 contradicts its first
           line by (D.9): then A is empty. |D_iᵀX_j| is meant, and taken here. The proof starts with
           c₁ = e^α ‖β*‖₁, the statement with c₁ = ‖β*‖₁
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.measurements import iterate
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

C, MOST_LAYERS = 0.25, 12


class Case(NamedTuple):
    """A matrix DᵀX on the event A, and β*."""

    G: Tensor
    star: Tensor
    n: float
    delta: float
    S: int

    def thetas(self, gamma: float, first: int) -> Tensor:
        """The thresholds γσ_max c₁ e^(−c₂(k−first)) for k = 1, 2, …"""
        least, _, most = sparse.coherence(self.G, self.S)
        shrink = sparse.contraction(gamma, self.S, least, most).clamp_min(1e-12)
        powers = torch.arange(1, MOST_LAYERS + 1) - first
        return gamma * most * self.star.abs().sum() * shrink**powers

    def factor(self, gamma: float) -> float:
        """The factor e^(−α_n) as (D.3) has it."""
        return sparse.rate_factor(self.n, self.S, len(self.star), self.delta, C, gamma)

    @property
    def largest_step(self) -> float:
        """The largest step that (D.14) allows."""
        a = sparse.deviation_width(self.S, self.delta, self.n, C)
        return (self.n + 2) / self.n / (1 + a)


@claim(
    "liu2025.proposition-2",
    "On the event of Lemma 3 and for n ≥ N_0, K layers leave an error of at most ‖β*‖₁ e^(−α_n K).",
    where="Appendix D.1, Proposition 2",
    kind="inequality",
    quick={"trials": 800},
    full={"trials": 60_000},
    tiny={"trials": 40},
    falsified={
        "1 − 2γ in place of 1 − 2γ/3": {"slope": 2.0},
        "γ up to 1.7 times the largest": {"stretch": 1.7},
        "γ ≤ 1.6 keeps the rate real": {"real": 1.6},
    },
)
def proposition_2(
    generator: torch.Generator,
    *,
    trials: int,
    slope: float = 2 / 3,
    stretch: float = 1.0,
    real: float = 1.5,
) -> Evidence:
    allowed = Inequality("(D.11): γ max_{i∈𝕊} D_iᵀX_i ≤ 1 for every γ < 1.6")
    smaller = Inequality("(D.11) for γ ≤ ((n+2)/n)/(1 + a), (D.14)")
    early = Inequality("‖β^(K+1) − β*‖ ≤ c₁ e^(−α_n K), Lemma 1's θ with k − 2, γ as in (D.14)")
    late = Inequality("the same, θ with k − 1", rounding=1e-9)
    large = Inequality("the same, θ with k − 1, for every γ < 1.6")
    positive = Inequality("0 < e^(−α_n), so that α_n is a number, for every γ < 1.6")
    bounded = Inequality("0 < e^(−α_n) for γ ≤ 3/2")
    for trial in range(trials):
        case = _smallest() if trial == 0 else _draw_case(generator, trial)
        own = case.largest_step
        gammas = (1.59, own * stretch, own * stretch * float(draw_uniform(generator)))
        size, told = (len(case.star), case.S, trial), _describe_case(case)
        most = float(sparse.coherence(case.G, case.S)[1])
        allowed.add(1.59 * most, 1.0, size=size, about=f"{told}, γ = 1.59")
        smaller.add(gammas[1] * most, 1.0, size=size, about=f"{told}, γ = {gammas[1]:.3g}")
        positive.add(-case.factor(1.59), 0.0, size=size, about=f"{told}, γ = 1.59, −e^(−α_n)")
        bounded.add(-case.factor(real - 1e-9), 0.0, size=size, about=f"{told}, γ = {real}")
        for found, gamma, first in (
            (early, gammas[1], 2),
            (late, gammas[1], 1),
            (early, gammas[2], 2),
            (late, gammas[2], 1),
            (large, 1.45, 1),
        ):
            factor = case.factor(gamma) + (2 / 3 - slope) * gamma
            errors = _errors(case, gamma, first)
            for K in (1, 2, 5, MOST_LAYERS):
                right = float(case.star.abs().sum()) * max(factor, 0.0) ** K
                about = f"{told}, γ = {gamma:.4g}, K = {K}"
                found.add(max(errors[K] - 1e-13, 0.0), right, size=(*size, K), about=about)
    late_check = late.check()
    return Evidence(
        parts=[
            Part(printed=allowed.check(), corrected=smaller.check()),
            Part(printed=early.check(), corrected=late_check),
            Part(printed=large.check(), corrected=late_check),
            Part(printed=positive.check(), corrected=bounded.check()),
        ],
        numbers={
            "(D.14) at n = N_0, S = 1, d = 20, δ = 0.1": _at_n_0(1),
            "(D.14) at n = N_0, S = 3, d = 20, δ = 0.1": _at_n_0(3),
            "n from which e^(−α_n) < 0 at γ = 1.59, S = 1, d = 20, δ = 0.1": _negative_from(),
        },
    )


def _errors(case: Case, gamma: float, first: int) -> list[float]:
    found = iterate(case.G, case.star, gamma, case.thetas(gamma, first))
    return (found - case.star).norm(dim=-1).tolist()


def _smallest() -> Case:
    """A case with D_iᵀX_i = 1 everywhere, D_2ᵀX_1 = 0.01: γ = 1 removes the error at once."""
    G = torch.eye(2, dtype=torch.float64)
    G[1, 0] = 0.01
    star = torch.tensor([1.0, 0.0], dtype=torch.float64)
    n = round(1_000 * sparse.least_examples(1, 2, 0.1, C))
    return Case(G, star, float(n), 0.1, 1)


def _draw_case(generator: torch.Generator, trial: int) -> Case:
    S, delta = draw_integer(generator, 1, 3), float(0.01 + 0.3 * draw_uniform(generator))
    d = S + draw_integer(generator, 0, 5)
    n = sparse.least_examples(S, d, delta, C) * 1_000 ** float(draw_uniform(generator))
    a, b = sparse.deviation_width(S, delta, n, C), sparse.deviation_width(d, delta, n, C)
    corner = trial % 2 == 0
    off = 2 * draw_uniform(generator, d, d) - 1
    off = b * (off.sign() if corner else off)
    sides = 2 * draw_uniform(generator, d) - 1
    diagonal = n / (n + 2) * (1 + a * (sides.sign() if corner else sides))
    G = off - torch.diag(off.diagonal()) + torch.diag(diagonal)
    star = torch.zeros(d, dtype=torch.float64)
    star[:S] = draw_normal(generator, S)
    return Case(G, star, n, delta, S)


def _describe_case(case: Case) -> str:
    first = f"D₁ᵀX₁ = {float(case.G[0, 0]):.4g}"
    d = len(case.star)
    return f"S = {case.S}, d = {d}, n = {case.n:.6g}, δ = {case.delta:.3g}, c = 1/4, {first}"


def _at_n_0(S: int) -> float:
    n = sparse.least_examples(S, 20, 0.1, C)
    return (n + 2) / n / (1 + sparse.deviation_width(S, 0.1, n, C))


def _negative_from() -> int:
    """The n at which 1.06 − 1 = 1.59 (b + a), where both go like 1/√n."""
    both = sparse.deviation_width(20, 0.1, 1, C) + sparse.deviation_width(1, 0.1, 1, C)
    return math.ceil((1.59 * both / (2 / 3 * 1.59 - 1)) ** 2)
