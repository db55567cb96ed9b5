"""Lemma 1: one iteration of LISTA-VM shrinks the error by e^(−c₂).

Printed    β₊ = S_θ(β − γDᵀ(Xβ − y)), y = Xβ*, θ = γσ_max c₁ e^(−c₂(k−2)), c₁ = ‖β*‖₁,
           e^(−c₂) = γ(2S−1)σ_max + |1 − γσ_min| ≤ 1 and 0 ≤ γ D_iᵀX_i ≤ 1 for all i. If
           ‖β − β*‖₁ ≤ c₁ e^(−c₂(k−2)), then ‖β₊ − β*‖₁ ≤ c₁ e^(−c₂(k−1)). Nothing is said of the
           support of β. The proof ends with c₁ e^(−c₂ k), one power better than the lemma
Tested     any D and X with the conditions, G = DᵀX not symmetric: X and D are drawn, D so that DᵀX
           is the G wanted (X a reflection). β with and without entries outside the support 𝕊 of
           β*. A search maximises ‖β₊ − β*‖₁ over G and β
Correction support(β) ⊂ 𝕊, which Lemma 2, used in the proof, asks for
Beyond     with it the constant cannot be better: the search attains equality
Note       the power c₁ e^(−c₂ k) that the proof ends with is tested too: equality at e^(−c₂(k−1))
           refutes it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

LARGEST_S, MORE, LAYERS = 4, 5, 6
Rate = Callable[[float, int, Tensor, Tensor], Tensor]


class Instance(NamedTuple):
    """D, X, β* and β with ‖β − β*‖₁ = r c₁ e^(−c₂(k−2)), γ, S and the iteration k."""

    D: Tensor
    X: Tensor
    star: Tensor
    beta: Tensor
    gamma: float
    S: int
    k: int

    @property
    def gram(self) -> Tensor:
        return self.D.mT @ self.X


def draw_uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def draw_instance(generator: torch.Generator, inside: bool) -> Instance:
    """Draw DᵀX under conditions (D.2); β at the edge of its ball, where the lemma is tightest."""
    S, k = draw_integer(generator, 1, LARGEST_S), draw_integer(generator, 1, LAYERS)
    d = S + draw_integer(generator, 1, MORE)
    gamma = float(0.05 + 1.45 * draw_uniform(generator))
    diagonal = draw_uniform(generator, d)
    diagonal[:S] = 0.3 + 0.7 * diagonal[:S]
    most = float(draw_uniform(generator)) * float(diagonal[:S].min()) / (2 * S - 1)
    G = most * (2 * draw_uniform(generator, d, d) - 1)
    G = (G - torch.diag(G.diagonal()) + torch.diag(diagonal)) / gamma
    X = torch.eye(d, dtype=torch.float64) - 2 * _projector(draw_normal(generator, d))
    D = X @ G.mT
    star = torch.zeros(d, dtype=torch.float64)
    star[:S] = 2 * draw_normal(generator, S)
    error = draw_normal(generator, d) if not inside else torch.zeros(d, dtype=torch.float64)
    error[:S] = draw_normal(generator, S)
    least, _, off = sparse.coherence(G, S)
    size = star.abs().sum() * sparse.contraction(gamma, S, least, off) ** (k - 2)
    return Instance(D, X, star, star + error * size / error.abs().sum(), gamma, S, k)


def _projector(vector: Tensor) -> Tensor:
    return torch.outer(vector, vector) / vector.dot(vector)


def smallest_instance() -> Instance:
    """The instance D = diag(1, 0), X = I: the second entry, off the support, never moves."""
    one = torch.eye(2, dtype=torch.float64)
    star = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return Instance(one * star, one, star, star.flip(0) + star, 0.5, 1, 2)


def error_and_bound(given: Instance, rate: Rate, power: int) -> tuple[Tensor, Tensor]:
    """The error ‖β₊ − β*‖₁, and the lemma's bound on it."""
    least, _, most = sparse.coherence(given.gram, given.S)
    shrink, c1 = rate(given.gamma, given.S, least, most), given.star.abs().sum()
    theta = (
        given.gamma
        * most
        * c1
        * sparse.contraction(given.gamma, given.S, least, most) ** (given.k - 2)
    )
    y = given.X @ given.star
    moved = given.beta - given.gamma * given.D.mT @ (given.X @ given.beta - y)
    after = soft_threshold(moved, theta)
    return (after - given.star).abs().sum(), c1 * shrink ** (given.k - power)


@claim(
    "liu2025.lemma-1",
    "An iteration of LISTA-VM with the thresholds named shrinks the 1-norm of the error by the "
    "factor γ(2S−1)σ_max + |1 − γσ_min|.",
    where="Appendix D.1, Lemma 1",
    kind="inequality",
    quick={"trials": 1_000, "starts": 3},
    full={"trials": 200_000, "starts": 60},
    tiny={"trials": 40, "starts": 1},
    falsified={
        "2S − 2 in place of 2S − 1": {
            "rate": lambda g, S, least, most: sparse.contraction(g, S, least, most) - g * most
        },
    },
)
def lemma_1(
    generator: torch.Generator, *, trials: int, starts: int, rate: Rate = sparse.contraction
) -> Evidence:
    anywhere = Inequality("‖β₊ − β*‖₁ ≤ c₁ e^(−c₂(k−1)) for any β in the ball", rounding=1e-6)
    within = Inequality("the same for β with support(β) ⊂ 𝕊", rounding=1e-6)
    better = Inequality("‖β₊ − β*‖₁ ≤ c₁ e^(−c₂k), the proof's last line", rounding=1e-6)
    found = smallest_instance()
    about = "D = diag(1, 0), X = I, β* = (1, 0), β = (1, 1), γ = 1/2, k = 2, so e^(−c₂) = 1/2"
    anywhere.add(*error_and_bound(found, rate, 1), size=(0,), about=about)
    for trial in range(trials):
        for inside in (False, True):
            given = draw_instance(generator, inside)
            about = f"d = {len(given.star)}, S = {given.S}, k = {given.k}, γ = {given.gamma:.3g}"
            size = (len(given.star), given.S, trial)
            tested = within if inside else anywhere
            tested.add(*error_and_bound(given, rate, 1), size=size, about=about)
    ratio = _search(generator, starts, rate, within)
    tight = tightest_instance()
    told = "D = [[1/2, −1/4], [0, 1/2]], X = I, β* = (4, 0), β = (1, 0), γ = 1, k = 3"
    better.add(*error_and_bound(tight, rate, 0), size=(0,), about=told)
    within.add(*error_and_bound(tight, rate, 1), size=(0,), about=told)
    kept = Inequality("c₁ e^(−c₂(k−1)) as the lemma itself says", rounding=1e-6)
    kept.add(*error_and_bound(tight, rate, 1), size=(0,), about=told)
    return Evidence(
        parts=[
            Part(printed=anywhere.check(), corrected=within.check()),
            Part(printed=better.check(), corrected=kept.check()),
        ],
        numbers={
            "share of β with entries outside 𝕊 that break it": anywhere.violations / anywhere.cases,
            "largest ‖β₊ − β*‖₁ found, in units of the bound": ratio,
        },
    )


def tightest_instance() -> Instance:
    """An instance with S = 1 at which (1 − γσ_min)|e| + θ is attained."""
    one = torch.eye(2, dtype=torch.float64)
    D = torch.tensor([[0.5, -0.25], [0.0, 0.5]], dtype=torch.float64)
    star = torch.tensor([4.0, 0.0], dtype=torch.float64)
    # e^(−c₂) = 1/4 + 1/2; at k = 3 the ball is c₁ · 3/4 = 3 wide.
    beta = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return Instance(D, one, star, beta, 1.0, 1, 3)


def _search(generator: torch.Generator, starts: int, rate: Rate, found: Inequality) -> float:
    """Search G and β on two entries of the support for the largest error, γ = 1 and k = 2."""
    S, star = 2, torch.tensor([50.0, 50.0, 0.0], dtype=torch.float64)
    one = torch.eye(3, dtype=torch.float64)

    def at(point: Tensor) -> Instance:
        diagonal = torch.cat([0.5 + 0.5 * point[:2].sigmoid(), torch.ones(1, dtype=torch.float64)])
        off = 0.15 * point[2:11].reshape(3, 3).tanh()
        G = off - torch.diag(off.diagonal()) + torch.diag(diagonal)
        error = torch.cat([point[11:13], torch.zeros(1, dtype=torch.float64)])
        size = star.abs().sum() / error.abs().sum()
        return Instance(G.mT, one, star, star + error * size, 1.0, S, 2)

    def margin(point: Tensor) -> Tensor:
        left, right = error_and_bound(at(point), rate, 1)
        return 1 - left / right

    best, least, evaluations = search_minimum(
        margin, draw_normal(generator, starts, 13), iterations=60
    )
    about = "where a search ended, d = 3, S = 2"
    found.add(*error_and_bound(at(best), rate, 1), size=(3, 2, 1e9), about=about)
    found.search_note = f"a search over G and β evaluated it {evaluations} times"
    return 1 - least
