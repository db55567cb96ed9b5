"""Lemma 4: the iterates never leave a ball.

Printed    if ‖β^(k)‖ ≤ C_x then ‖β^(k+1)‖ ≤ C_x = d b_x b_β (N+1)/σ_min(XᵀX), for every token.
           The proof sets M^V = 2/σ_d² I and leaves γ open; it uses ‖I − A‖ ≤ 1 − σ_min(A), bounds
           ‖XᵀY‖/i by d b_x b_β, and σ_min of a prefix by that of all of X ("interlacing")
Tested     LISTA-VM's step at every prefix n ≥ d, M^V as in the proof, any scale of x, β in the ball
Correction C = n b_x² b_β/σ_min(X_nᵀX_n) with the token's own n examples, for γ‖D_nᵀX_n‖ ≤ 1
           (σ_min of all of X says nothing of a prefix, and y = ⟨x, β*⟩ brings a second b_x). Then
           ‖β₊‖ ≤ (1 − σ_min(A))‖β‖ + ‖A‖b_β and A = γD_nᵀX_n make C fit
Beyond     for n < d there is no such ball: σ_min(X_nᵀX_n) = 0; nor is there one for γ‖DᵀX‖ > 2,
           where the iterates of an unthresholded step diverge
Note       ‖x‖ ≤ b_x and ‖β*‖₁ ≤ b_β, the least values possible are taken
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Inequality

Ball = Callable[[Tensor, int, float], float]


def printed_ball(X: Tensor, n: int, b_beta: float) -> float:
    """The printed radius C_x, from all N examples."""
    N, d = X.shape
    return d * _longest(X) * b_beta * (N + 1) / _least(X)


def proper_ball(X: Tensor, n: int, b_beta: float) -> float:
    """The corrected radius n b_x² b_β/σ_min(X_nᵀX_n), from the n examples of the token."""
    return n * _longest(X) ** 2 * b_beta / _least(X[:n])


def too_small(X: Tensor, n: int, b_beta: float) -> float:
    return proper_ball(X, n, b_beta) / (n * _longest(X) ** 2) * _least(X[:n]) / 2


def _longest(X: Tensor) -> float:
    return float(X.norm(dim=-1).max())


def _least(X: Tensor) -> float:
    return float(torch.linalg.eigvalsh(X.mT @ X)[0])


@claim(
    "liu2025.lemma-4",
    "A ball whose radius depends on the least singular value of X holds all iterates.",
    where="Appendix E.1, Lemma 4",
    kind="inequality",
    quick={"trials": 1_500},
    full={"trials": 50_000},
    tiny={"trials": 60},
    falsified={"the ball of radius b_β/2": {"ball": too_small}},
)
def lemma_4(generator: torch.Generator, *, trials: int, ball: Ball = proper_ball) -> Evidence:
    printed = Inequality("‖β₊‖ ≤ d b_x b_β(N+1)/σ_min(XᵀX) where ‖β‖ is, γ ≤ 1/‖D_nᵀX_n‖")
    proper = Inequality("‖β₊‖ ≤ n b_x² b_β/σ_min(X_nᵀX_n) where ‖β‖ is, γ ≤ 1/‖D_nᵀX_n‖")
    wide = Inequality("the same ball, γ = 3/2")
    limited = Inequality("the same ball, γ ≤ 1/‖D_nᵀX_n‖")
    for trial in range(trials):
        X, star, n, share = _smallest() if trial == 0 else _draw_case(generator)
        N, d = X.shape
        G = 2 * X[:n].mT @ X[:n] / (2 * n + 1) / X.square().mean(0).min()
        gamma = share / float(torch.linalg.eigvalsh(G)[-1])
        b_beta, theta = float(star.abs().sum()), 0.01 * trial % 0.1
        about = f"d = {d}, N = {N}, n = {n}, γ = {gamma:.3g}, b_x = {_longest(X):.3g}"
        size = (d, N, n, trial)
        for found, radius, g in (
            (printed, printed_ball(X, n, b_beta), gamma),
            (proper, ball(X, n, b_beta), gamma),
            (wide, ball(X, n, b_beta), 1.5),
            (limited, ball(X, n, b_beta), gamma),
        ):
            for kind in range(3):
                beta = _inside(generator, G, radius, kind)
                after = soft_threshold(beta - g * G @ (beta - star), theta)
                told = f"{about}, γ used {g:.3g}, ‖β‖ = {float(beta.norm()):.3g}"
                found.add(after.norm(), radius, size=size, about=told)
    return Evidence(
        parts=[
            Part(printed=printed.check(), corrected=proper.check()),
            Part(printed=wide.check(), corrected=limited.check()),
        ],
        numbers={
            "share of cases that leave the printed ball": printed.violations / printed.cases,
            "share of cases that leave the corrected ball at γ = 3/2": wide.violations / wide.cases,
        },
    )


def _smallest() -> tuple[Tensor, Tensor, int, float]:
    """The case x = 10, β* = 1, N = 1: C_x = 10 · 2/100 = 0.2, and β = 0 moves to γ · 2/3."""
    ten = torch.tensor([[10.0]], dtype=torch.float64)
    return ten, torch.ones(1, dtype=torch.float64), 1, 2 / 3


def _draw_case(generator: torch.Generator) -> tuple[Tensor, Tensor, int, float]:
    d = draw_integer(generator, 1, 5)
    N = d + draw_integer(generator, 0, 20)
    scale = 10 ** (2 * float(draw_uniform(generator)) - 1)
    X = scale * draw_normal(generator, N, d) * (0.5 + draw_uniform(generator, d))
    star = draw_normal(generator, d)
    star[draw_integer(generator, 1, d) :] = 0
    return X, star, draw_integer(generator, d, N), float(0.1 + 0.9 * draw_uniform(generator))


def _inside(generator: torch.Generator, G: Tensor, radius: float, kind: int) -> Tensor:
    """Points of the ball: 0, a random one on its sphere, the eigenvector a step shrinks least."""
    if kind == 0:
        return torch.zeros(len(G), dtype=torch.float64)
    if kind == 1:
        beta = draw_normal(generator, len(G))
        return radius * beta / beta.norm()
    return radius * torch.linalg.eigh(G)[1][:, 0]
