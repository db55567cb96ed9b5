"""Lemma 8: layers in proportion to the inverse covariance can be swapped.

Printed    x ~ N(0, Σ), w* ~ N(0, Σ⁻¹), layers of form (9) with A_i = a_i Σ⁻¹, i = 0 … k: swapping
           any two of them leaves the in-context loss f as it is. Proof: 1/n dropped,
           f = E tr((I−M) Gᵀ Σ⁻¹ G (I−M)), G = X_0 ∏_{ℓ=0}^k (I + M X_0ᵀ A_ℓ X_0), whose factors
           commute; that A_ℓ and A_{ℓ+1} are one matrix up to scale is said to be crucial
Tested     the factors on prompts; the loss of the proof against layers run on tokens, for any A_i;
           the label of the query after all layers, swapped and not, for every number of layers; the
           loss itself by exact moments that know nothing of commuting; then the same moments for
           symmetric A_i that are not in proportion
Readings   k + 1 layers, as in (23), whose output is Y_{k+1}: holds. By (5) the output is Z_k, which
           the matrix A_k has not entered: swapping it does change the loss
Correction with (5), i and j are among 0 … k−1
Beyond     no covariance is needed: A_i = a_i B with any matrix B will do, and every prediction
           stays, not only the loss
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from innerloop.claims.ahn2023.two_layers import draw_landscape
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import (
    attention,
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
)
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.stack import expected_loss
from innerloop.theory.wishart import Wishart

Family = Callable[[torch.Generator, Tensor, Tensor], Tensor]
GAP = 1e-6
"""A relative difference of exact losses that rounding cannot cause."""


def proportional_matrices(generator: torch.Generator, S: Tensor, a: Tensor) -> Tensor:
    """A_i = a_i Σ⁻¹."""
    return a[:, None, None] * torch.linalg.inv(S)


def commuting_matrices(generator: torch.Generator, S: Tensor, a: Tensor) -> Tensor:
    """Matrices A_i that commute with Σ and with each other, but are not in proportion."""
    inverse = torch.linalg.inv(S)
    return torch.stack([a[i] * torch.linalg.matrix_power(inverse, i + 1) for i in range(len(a))])


def symmetric_matrices(generator: torch.Generator, S: Tensor, a: Tensor) -> Tensor:
    drawn = draw_normal(generator, len(a), *S.shape)
    return 0.5 * (drawn + drawn.mT)


def product_in_order(factors: Sequence[Tensor]) -> Tensor:
    """The product of the factors from left to right."""
    product = factors[0]
    for factor in factors[1:]:
        product = product @ factor
    return product


@claim(
    "ahn2023.lemma-8",
    "Swapping two layers whose matrices are in proportion to the inverse covariance leaves the "
    "in-context loss unchanged.",
    where="Appendix B.4, Lemma 8",
    kind="equality",
    quick={"trials": 200, "exact": 24, "grid": 41},
    full={"trials": 10_000, "exact": 300, "grid": 61},
    tiny={"trials": 20, "exact": 4, "grid": 9},
    falsified={
        "A_i commute, but are not in proportion": {"family": commuting_matrices},
        "the product from right to left": {
            "product": lambda factors: product_in_order(factors[::-1])
        },
        "matrices that are in proportion": {"other": proportional_matrices},
    },
)
def lemma_8(
    generator: torch.Generator,
    *,
    trials: int,
    exact: int,
    grid: int,
    family: Family = proportional_matrices,
    product: Callable[[Sequence[Tensor]], Tensor] = product_in_order,
    other: Family = symmetric_matrices,
) -> Evidence:
    commuting = Equality("(I + M XᵀA_ℓX)(I + M XᵀA_{ℓ+1}X) is the same in either order")
    written = Equality(
        "E_w[error²] = tr((I−M) GᵀΣ⁻¹G (I−M)), G = X_0 ∏_ℓ (I + M X_0ᵀ A_ℓ X_0), any A_ℓ"
    )
    all_layers = Equality("f(A) = f(Ã) for the output of layers 0 … k, as (23) has it")
    one_less = Equality("f(A) = f(Ã) for i, j in 0 … k and the output Z_k, as (5) has it")
    inside = Equality("with the output Z_k of (5), f(A) = f(Ã) for i, j in 0 … k−1")
    _smallest(one_less)
    for trial in range(trials):
        d, n, k = 1 + trial % 4, draw_integer(generator, 1, 8), draw_integer(generator, 1, 5)
        size, about = (d, n, k), f"d = {d}, n = {n}, k = {k}"
        S = draw_covariance(generator, d, 10.0)
        X = draw_normal(generator, n + 1, d) @ torch.linalg.cholesky(S).mT
        A = family(generator, S, _draw_scales(generator, k + 1, n))
        factors = [_factor(X, matrix) for matrix in A]
        commuting.add(factors[0] @ factors[1], factors[1] @ factors[0], size=size, about=about)
        free = symmetric_matrices(generator, S, torch.ones(k + 1)) / n
        written.add(_loss_by_proof(X, S, free, product), _error(X, S, free), size=size, about=about)
        i, j = torch.randperm(k + 1, generator=generator)[:2].tolist()
        moved = _swap_layers(A, i, j)
        all_layers.add(_error(X, S, moved), _error(X, S, A), size=size, about=about)
        one_less.add(_error(X, S, moved[:k]), _error(X, S, A[:k]), size=size, about=about)
        i, j = (int(index) for index in torch.randint(0, k, (2,), generator=generator))
        inside.add(
            _error(X, S, _swap_layers(A, i, j)[:k]), _error(X, S, A[:k]), size=size, about=about
        )
    gaps = _exact(generator, exact, family, other, all_layers)
    parts = [
        Part(printed=commuting.check()),
        Part(printed=written.check()),
        Part(printed=all_layers.check()),
        Part(printed=one_less.check(), corrected=inside.check(), matters="print"),
        Part(printed=gaps.check()),
    ]
    figure, numbers = draw_landscape(grid)
    numbers["A_i = a_i B, B any matrix: largest relative change of an error"] = _any_matrix(
        generator
    )
    return Evidence(parts=parts, numbers=numbers, figures=[figure])


def _draw_scales(generator: torch.Generator, count: int, n: int) -> Tensor:
    """Draw a_i of both signs, small enough that iterates stay of order one; they include 1/n."""
    return draw_normal(generator, count) / (2 * n)


def _swap_layers(A: Tensor, i: int, j: int) -> Tensor:
    order = list(range(len(A)))
    order[i], order[j] = order[j], order[i]
    return A[order]


def _factor(X: Tensor, A: Tensor) -> Tensor:
    """The factor I + M Xᵀ A X; X has its tokens in rows, the query last."""
    M = torch.ones(len(X), 1, dtype=X.dtype)
    M[-1] = 0.0
    return torch.eye(len(X), dtype=X.dtype) + M * (X @ A @ X.mT)


def _loss_by_proof(X: Tensor, S: Tensor, A: Tensor, product: Callable[..., Tensor]) -> Tensor:
    """The loss on one prompt as the proof writes it; I − M selects the query's column."""
    last = (X.mT @ product([_factor(X, matrix) for matrix in A]))[:, -1]
    return last @ torch.linalg.inv(S) @ last


def _error(X: Tensor, S: Tensor, A: Tensor) -> Tensor:
    """Squared error on the query, averaged over w* ~ N(0, Σ⁻¹), of layers without 1/n.

    The layers run on tokens. The error is linear in w*, so d prompts determine its expectation.
    """
    d = len(S)
    root = torch.linalg.cholesky(torch.linalg.inv(S))
    Z = build_tokens(X[:-1].expand(d, -1, -1), root.mT, X[-1].expand(d, -1))
    P = torch.zeros(d + 1, d + 1, dtype=X.dtype)
    P[d, d] = 1.0
    for matrix in A:
        Z = Z + attention(Z, P, torch.nn.functional.pad(matrix, (0, 1, 0, 1)))
    return ((Z[:, d, -1] + root.mT @ X[-1]) ** 2).sum()


def _smallest(trial: Equality) -> None:
    """The case d = n = k = 1, Σ = 1: by (5) only A_0 has entered, E[(1 + a g)²] = 1 + 2a + 3a²."""
    law = Wishart(torch.ones(1, 1, dtype=torch.float64), 1)
    losses = [float(1 + 2 * a * law.power(1) + a**2 * law.power(2)) for a in (-1 / 3, 0.0)]
    about = f"d = n = k = 1, Σ = 1, A_0 = −1/3, A_1 = 0: f = {losses[0]:.4f}, swapped {losses[1]:g}"
    trial.add(losses[1], losses[0], size=(0, 0, 0), about=about)


def _exact(
    generator: torch.Generator, count: int, family: Family, other: Family, trial: Equality
) -> Inequality:
    """Swap two layers under exact moments: no change for the family, some for other matrices."""
    gaps = Inequality(f"A_0, A_1 not in proportion: |f(A) − f(Ã)| ≥ {GAP:g} f(A)")
    for case in range(count):
        d, n = 2 + case % 2, draw_integer(generator, 1, 10)
        S = draw_covariance(generator, d, 10.0)
        size, about = (d, n, 1), f"d = {d}, n = {n}, two layers, exact loss"
        for matrices, kept in ((family, True), (other, False)):
            A = matrices(generator, S, draw_normal(generator, 2))
            both = torch.stack([A, A.flip(0)], dim=1)
            one, two = expected_loss(both, S, torch.linalg.inv(S), n)
            if kept:
                trial.add(two, one, size=size, about=about)
            else:
                gaps.add(GAP, (one - two).abs() / one, size=size, about=about)
    return gaps


def _any_matrix(generator: torch.Generator) -> float:
    worst = 0.0
    for d, n in ((2, 1), (3, 5), (4, 8)):
        S, X = draw_covariance(generator, d, 10.0), draw_normal(generator, n + 1, d)
        A = _draw_scales(generator, 4, n)[:, None, None] * draw_normal(generator, d, d)
        one, two = _error(X, S, A), _error(X, S, A.flip(0))
        worst = max(worst, float((one - two).abs() / one))
    return worst
