"""Lemma 4: the iterates never leave a ball.

Printed    if ‖β^(k)‖ ≤ C_x then ‖β^(k+1)‖ ≤ C_x = d b_x b_β (N+1)/σ_min(XᵀX), for every token.
           The proof sets M^V = 2/σ_d² I and leaves γ open; it uses ‖I − A‖ ≤ 1 − σ_min(A), bounds
           ‖XᵀY‖/i by d b_x b_β, and σ_min of a prefix by that of all of X ("interlacing")
Tested     LISTA-VM's step at every prefix n ≥ d (below, σ_min(X_nᵀX_n) = 0), M^V as in the proof,
           any scale of x, γ‖D_nᵀX_n‖ ≤ 1, β in the ball; b_x and b_β the least values possible
Corrected  C = n b_x² b_β/σ_min(X_nᵀX_n) with the token's own n examples, for M^V = mI and
           A = γD_nᵀX_n ≼ I. y = ⟨x, β*⟩ brings a second b_x, and σ_min of all of X says nothing of
           a prefix. Proof: S_θ lowers norms, so ‖β₊‖ ≤ ‖(I − A)β + Aβ*‖ ≤ (1 − λ_min(A))C +
           λ_max(A)b_β, at most C if C ≥ b_β λ_max(A)/λ_min(A); and λ_max(X_nᵀX_n) ≤ n b_x²
Beyond     γ = 3/2 is too large for that: where γ‖D_nᵀX_n‖ > 2, unthresholded steps diverge
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025.hard_instances import HARD_MATRICES
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_counterexample
from innerloop.claims.trials import Inequality


class Step(NamedTuple):
    """The longest β₊ from a ball, in units of its radius."""

    printed: float
    """From the printed ball."""
    proper: float
    """From the corrected ball."""
    wide: float
    """From the corrected ball with γ = 3/2."""
    case: Case


class Data(NamedTuple):
    steps: list[Step]
    searched: tuple[float, Case, str]
    """The longest β₊ that a search found, in units of the corrected radius."""


def judge_ball(data: Data) -> Evidence:
    line = "$‖β₊‖ ≤ C$ where $‖β‖ ≤ C$, $C = {}$, $γ{}$"
    all_of, own = "d b_x b_β(N+1)/σ_min(XᵀX)", "n b_x² b_β/σ_min(X_nᵀX_n)"
    printed = Inequality(line.format(all_of, "‖D_nᵀX_n‖ ≤ 1"))
    proper = Inequality(line.format(own, "‖D_nᵀX_n‖ ≤ 1"), rounding=1e-9)
    wide = Inequality(line.format(own, " = 3/2"), rounding=1e-9)
    for step in data.steps:
        printed.add(step.printed, 1.0, step.case)
        proper.add(step.proper, 1.0, step.case)
        wide.add(step.wide, 1.0, step.case.extend(γ=torch.tensor(1.5)))
    length, case, summary = data.searched
    proper.add(length, 1.0, case)
    proper.search_note = summary
    return Evidence(
        parts=[Part(printed=printed.check(), corrected=proper.check())], beyond=[wide.check()]
    )


@claim(
    "liu2025.lemma-4",
    "A ball whose radius depends on the least singular value of $X$ holds all iterates.",
    where="Appendix E.1, Lemma 4",
    kind="inequality",
    hypotheses={
        "$M^V = 2/σ_d² I$": "the proof",
        "$γ‖D_nᵀX_n‖ ≤ 1$": "the proof's first inequality; Lemma 1 has $0 ≤ γ D_iᵀX_i ≤ 1$",
        "$n ≥ d$": "else $σ_min(X_nᵀX_n) = 0$",
    },
    quick={"trials": 700, "iterations": 60},
    full={"trials": 50_000, "iterations": 200},
    tiny={"trials": 60, "iterations": 5},
    judge=judge_ball,
    falsified={
        "iterates longer by a tenth": change_field("steps.proper", lambda proper: 1.1 * proper)
    },
)
def lemma_4(generator: torch.Generator, *, trials: int, iterations: int) -> Data:
    steps = [_measure_step(generator, *given) for given in _list_by_hand()]
    for trial in range(1, trials):
        steps.append(_measure_step(generator, *_draw_case(generator), 0.01 * trial % 0.1))
    found = search_counterexample(
        _margin,
        [{"d": d} for d in (1, 2, 3)],
        generator,
        pool=HARD_MATRICES,
        descents=2,
        iterations=iterations,
    )
    return Data(steps, (1 - found.margin, found.case, found.summary))


def _margin(X: Tensor, *, d: int) -> tuple[Tensor, Tensor]:
    """1 − ‖β₊‖/C for n = d, β* = e₁, γ‖DᵀX‖ = 1 and β on the sphere where a step shrinks least."""
    values, vectors = torch.linalg.eigh(X.mT @ X)
    star = torch.zeros_like(X[..., 0])
    star[..., 0] = 1
    radius = d * X.square().sum(-1).amax(-1) / values[..., 0]
    beta = radius[..., None] * vectors[..., 0]
    beta = torch.where((beta[..., :1] < 0), -beta, beta)
    pull = (X.mT @ X @ (beta - star).unsqueeze(-1)).squeeze(-1) / values[..., -1:]
    return 1 - (beta - pull).norm(dim=-1) / radius, values[..., 0] / values[..., -1] - 1e-9


def _measure_step(
    generator: torch.Generator,
    X: Tensor,
    star: Tensor,
    n: int,
    gamma: float | None,
    share: float = 1.0,
    theta: float = 0.0,
    note: str = "",
) -> Step:
    """Measure a step with γ, or with γ‖D_nᵀX_n‖ = `share` where γ is None."""
    (N, d), own = X.shape, X[:n].mT @ X[:n]
    G = 2 * own / (2 * n + 1) / X.square().mean(0).min()
    gamma = gamma or share / float(torch.linalg.eigvalsh(G)[-1])
    b_x, b_beta = float(X.norm(dim=-1).max()), float(star.abs().sum())
    printed = d * b_x * b_beta * (N + 1) / float(torch.linalg.eigvalsh(X.mT @ X)[0])
    proper = n * b_x**2 * b_beta / float(torch.linalg.eigvalsh(own)[0])
    direction = draw_normal(generator, d)
    points = torch.stack(
        [0 * direction, direction / direction.norm(), torch.linalg.eigh(G)[1][:, 0]]
    )

    def lengthen(radius: float, step: float) -> float:
        moved = radius * points - step * (radius * points - star) @ G
        return float(soft_threshold(moved, theta).norm(dim=-1).max()) / radius

    case = Case(d=d, N=N, n=n, γ=torch.tensor(gamma), b_x=torch.tensor(b_x), note=note)
    return Step(lengthen(printed, gamma), lengthen(proper, gamma), lengthen(proper, 1.5), case)


def _list_by_hand() -> list[tuple]:
    """One example x = 1, 2, …, 10 with β* = 1 and γ = 1; and two, of which the first is seen.

    From β = C_x = 2/x a step leads to (2/x + 2)/3 where γD₁ᵀX₁ = 2/3: beyond C_x from x = 3 on.
    """
    one = torch.ones(1, dtype=torch.float64)
    words = "$x = {}$, $β* = 1$, in units of $C$"
    found = [(x * one[None], one, 1, 1.0, 1.0, 0.0, words.format(x)) for x in range(1, 11)]
    two = torch.tensor([[2.0], [1.0]], dtype=torch.float64)
    return [*found, (two, one, 1, 0.5, 1.0, 0.0, words.format("2, 1"))]


def _draw_case(generator: torch.Generator) -> tuple[Tensor, Tensor, int, None, float]:
    d = draw_integer(generator, 1, 5)
    N = d + draw_integer(generator, 0, 20)
    scale = 10 ** (2 * float(draw_uniform(generator)) - 1)
    X = scale * draw_normal(generator, N, d) * (0.5 + draw_uniform(generator, d))
    star = draw_normal(generator, d)
    star[draw_integer(generator, 1, d) :] = 0
    n, share = draw_integer(generator, d, N), float(0.1 + 0.9 * draw_uniform(generator))
    return X, star, n, None, share
