"""Lemma 2: the support of the iterates stays inside that of β*.

Printed    under the conditions of Theorem 5.1: if support(β) ⊂ 𝕊 and
           ‖β_𝕊 − β*_𝕊‖ ≤ c₁ e^(−c₂(k−1)), then support(β₊) ⊂ 𝕊, θ being that "of Theorem 1", which
           can only be Lemma 1's γσ_max c₁ e^(−c₂(k−2))
Reading    the 1-norm: the proof bounds ‖β − β*‖₁, and Lemma 1, which uses this one, has the 1-norm.
           The paper's ‖·‖ is the 2-norm, with which it fails for S ≥ 2 and small γ
Tested     DᵀX as at n ≥ N_0: σ_max(2S−1) ≤ σ_min, γ from 0.05 to 1; β at the edge of its ball, in
           the worst direction (all entries alike, signs those of a row of DᵀX) and at random
Beyond     θ may be smaller by e^(−c₂), the value that Proposition 2 needs
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025.hard_instances import list_hard_grams
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Inequality, Working
from innerloop.theory import sparse

LARGEST_S, LAYERS = 4, 6


class Step(NamedTuple):
    """The largest entry off 𝕊 before S_θ, for β at the edge of either ball, and θ."""

    euclidean: float
    absolute: float
    theta: float
    lower: float
    """θ with k − 1."""
    working: Working
    """How `euclidean` and `theta` are computed."""
    case: Case


def judge_supports(steps: list[Step]) -> Evidence:
    line = (
        "an entry off $𝕊$ is at most $θ$ in size before $S_θ$, so it becomes 0, for the {}-norm of "
        "the error{}"
    )
    euclidean, absolute, lower = (
        Inequality(line.format(*words))
        for words in (("2", ""), ("1", ""), ("1", " and $θ = γσ_max c₁ e^(−c₂(k−1))$"))
    )
    for step in steps:
        euclidean.add(step.euclidean, step.theta, step.case, working=step.working)
        absolute.add(step.absolute, step.theta, step.case)
        lower.add(step.absolute, step.lower, step.case)
    held = absolute.check()
    return Evidence(
        parts=[Part(printed=held, reading="the 1-norm, as in the proof and in Lemma 1")],
        errata=[
            Part(printed=euclidean.check(), corrected=held).as_erratum(
                "Lemma 2, $‖·‖$ for $‖·‖₁$", grade="print"
            ),
            misprint(
                "the proof of Lemma 2",
                "$θ^(k)$ as defined in Theorem 1; $β_i^(k) = 0$ for $i ∉$ 𝕊",
                "$θ^(k)$ as in Lemma 1, and the conclusion $β_i^(k+1) = 0$",
                "the paper has no Theorem 1, and $β_i^(k) = 0$ is the hypothesis",
            ),
        ],
        beyond=[lower.check()],
    )


@claim(
    "liu2025.lemma-2",
    "If an iterate lies in the support of $β*$ and near $β*$, the next one lies in that support.",
    where="Appendix D.1, Lemma 2",
    kind="inequality",
    hypotheses={
        "support(β) ⊂ 𝕊": "the lemma",
        "$σ_max(2S−1) ≤ σ_min$": "(D.10), at $n ≥ N_0$: the conditions of Theorem 5.1",
    },
    quick={"trials": 4_000},
    full={"trials": 200_000},
    tiny={"trials": 100},
    judge=judge_supports,
    falsified={
        "entries off the support twice as large": change_field("absolute", lambda size: 2 * size)
    },
)
def lemma_2(generator: torch.Generator, *, trials: int) -> list[Step]:
    hard = [(G, gamma, S, 2) for S in (1, 2) for _, G in list_hard_grams(S) for gamma in (0.1, 1.0)]
    given = [_smallest(), *hard, *(_draw_instance(generator) for _ in range(trials))]
    return [_measure_step(generator, trial, *each) for trial, each in enumerate(given)]


def _measure_step(
    generator: torch.Generator, trial: int, G: Tensor, gamma: float, S: int, k: int
) -> Step:
    direction = _find_worst(G, S) if trial % 2 == 0 else draw_normal(generator, S)
    least, _, most = sparse.coherence(G, S)
    shrink = sparse.contraction(gamma, S, least, most)
    moved = (gamma * G[S:, :S] @ direction).abs().max()
    two, one = (float(moved / direction.norm(p=p) * shrink ** (k - 1)) for p in (2, 1))
    theta = gamma * float(most) * shrink ** (k - 2)
    working = (
        f"{float(moved / direction.norm()):.6g} · {float(shrink):.6g}^{k - 1}",
        f"{gamma:.6g} · {float(most):.6g} · {float(shrink):.6g}^{k - 2}",
    )
    values: dict[str, Any] = {"DᵀX": G, "γ": torch.tensor(gamma), "k": torch.tensor(k)}
    case = Case(S=S, d=len(G), **values)
    return Step(two, one, float(theta), float(theta * shrink), working, case)


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


def _find_worst(G: Tensor, S: int) -> Tensor:
    """Signs of the heaviest row off the support; its entries are also made equal."""
    row = G[S:, :S].abs().sum(-1).argmax()
    signs = torch.where(G[S + row, :S] < 0, -1.0, 1.0).double()
    off = G - torch.diag(G.diagonal())
    G[S + row, :S] = signs * off.abs().max()
    return signs
