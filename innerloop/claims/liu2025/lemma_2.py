"""Lemma 2: the support of the iterates stays inside that of β*.

Printed    under the conditions of Theorem 5.1: if support(β) ⊂ 𝕊 and
           ‖β_𝕊 − β*_𝕊‖ ≤ c₁ e^(−c₂(k−1)), then support(β₊) ⊂ 𝕊. The paper's ‖·‖ is the 2-norm; θ is
           that "of Theorem 1", which can only be Lemma 1's γσ_max c₁ e^(−c₂(k−2)). The proof uses
           the 1-norm, and needs no more of θ than γσ_max c₁ e^(−c₂(k−1))
Tested     DᵀX as at n ≥ N_0: σ_max(2S−1) ≤ σ_min, γ from 0.05 to 1; β at the edge of its ball, in
           the worst direction (all entries alike, signs those of a row of DᵀX) and at random; both
           norms with both thresholds
Correction the 1-norm. With the 2-norm it fails as soon as √S > e^(c₂), so for S ≥ 2 and small γ
Beyond     with the 1-norm θ may be smaller by e^(−c₂), the value that Proposition 2 needs
Note       the proof ends with β_i^(k) = 0, where it has shown β_i^(k+1) = 0
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

LARGEST_S, LAYERS = 4, 6


@claim(
    "liu2025.lemma-2",
    "If an iterate lies in the support of β* and near β*, the next one lies in that support.",
    where="Appendix D.1, Lemma 2",
    kind="inequality",
    quick={"trials": 4_000},
    full={"trials": 200_000},
    tiny={"trials": 100},
    falsified={"a threshold that is a tenth smaller": {"scale": 0.9}},
)
def lemma_2(generator: torch.Generator, *, trials: int, scale: float = 1.0) -> Evidence:
    euclidean = Inequality("|entry off 𝕊 before S_θ| ≤ θ, 2-norm of the error, θ of Lemma 1")
    printed = Inequality("the same with the 1-norm of the error")
    lower = Inequality("the same with the 1-norm and θ = γσ_max c₁ e^(−c₂(k−1))")
    kept, above = 0, 0.0
    for trial in range(trials):
        G, gamma, S, k = _smallest() if trial == 0 else _draw_instance(generator)
        direction = _worst(G, S) if trial % 2 == 0 else draw_normal(generator, S)
        least, _, most = sparse.coherence(G, S)
        shrink = sparse.contraction(gamma, S, least, most)
        told = f"S = {S}, γ = {gamma:.3g}, σ_max = {float(most):.3g}, e^(−c₂) = {float(shrink):.3g}"
        for found, norm, power in ((euclidean, 2, 2), (printed, 1, 2), (lower, 1, 1)):
            theta = scale * gamma * most * shrink ** (k - power)
            error = direction * shrink ** (k - 1) / direction.norm(p=norm)
            moved = (gamma * G[S:, :S] @ error).abs().max()
            outside = soft_threshold(moved, theta)
            if found is euclidean:
                above = max(above, float(outside / theta))
            kept += found is printed and float(outside) <= 1e-12
            found.add(moved, theta, size=(S, len(G), trial), about=f"{told}, k = {k}")
    return Evidence(
        parts=[
            Part(printed=euclidean.check(), corrected=printed.check()),
            Part(printed=lower.check()),
        ],
        numbers={
            "share of cases in which the 2-norm is not enough": euclidean.violations / trials,
            "largest entry off the support, in units of θ": above,
            "cases with support(β₊) ⊂ 𝕊, 1-norm": kept,
        },
    )


def _smallest() -> tuple[Tensor, float, int, int]:
    """Two entries on the support, one off it; θ = 1.078 · σ_max e^(−c₂(k−1)) < √2 of it."""
    G = torch.eye(3, dtype=torch.float64)
    G[2, :2] = 0.1
    return G, 0.1, 2, 2


def _draw_instance(generator: torch.Generator) -> tuple[Tensor, float, int, int]:
    S, k = draw_integer(generator, 1, LARGEST_S), draw_integer(generator, 1, LAYERS)
    d = S + draw_integer(generator, 1, 5)
    gamma = float(0.05 + 0.95 * draw_uniform(generator))
    diagonal = 0.6 + 0.4 * draw_uniform(generator, d)
    most = float(draw_uniform(generator)) * float(diagonal.min()) / (2 * S - 1)
    G = most * (2 * draw_uniform(generator, d, d) - 1)
    return G - torch.diag(G.diagonal()) + torch.diag(diagonal), gamma, S, k


def _worst(G: Tensor, S: int) -> Tensor:
    """Signs of the heaviest row off the support; its entries are also made equal."""
    row = G[S:, :S].abs().sum(-1).argmax()
    signs = torch.where(G[S + row, :S] < 0, -1.0, 1.0).double()
    off = G - torch.diag(G.diagonal())
    G[S + row, :S] = signs * off.abs().max()
    return signs
