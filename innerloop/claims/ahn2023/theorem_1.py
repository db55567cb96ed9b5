"""Theorem 1: the global minimum of the in-context loss of one layer of linear attention.

Printed    x ~ N(0, Σ), w* ~ N(0, I), P = [0; bᵀ], Q = [A 0] (7): b = e_{d+1} and
           A = −[U diag(1/((n+1)/n λ_i + (1/n) Σ_k λ_k)) Uᵀ; 0] (8) is a global minimum of f(b, A),
           and so is (γb, A/γ); at Σ = I, A = −1/((n−1)/n + (d+2)/n) [I; 0]; for large n, A ≈ Σ⁻¹;
           f, by (6) an expectation without a square, depends on the last row of P and the first n
           columns of Q only; the optimum is unique (contributions), and so is that of each
           component f_j (proof, steps 3 and 1 of A.2 and A.3)
Tested     f by exact moments, against the layer run on tokens (a product rule that integrates it
           exactly); the gradient in all of b and A; f(8) against random weights, weights nearby and
           the ends of L-BFGS from random starts; Σ dense, of any rank, n from 1 up
Correction (6) wants a square; d, not n, rows and columns; −A → Σ⁻¹; f_j is least on X_j plus any
           antisymmetric matrix, C being symmetric; for d ≥ 2 the optimum is unique up to (γb, A/γ),
           for d = 1 there is a second family, b = γe_1, A = −e_2/(γ((n+1)/n + 1/n)λ)
Beyond     f − f(8) is a sum of two squares (see innerloop.theory.single_layer): a proof for all
           (b, A) at once. For d ≥ 2 the loss has minima that are not global, as
           at Σ = diag(2, 1), n = 2: b = e_1, A = [0; 0; (−1/4.5, 0)]
Note       the proof writes A = [a_1 a_1 … a_d], "for all i" where j is meant, and quotes Lemma 6
           for Lemma 7 in the diagonal case
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import minima, one_layer
from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.single_layer import SingleLayerLoss

Weights = tuple[Tensor, Tensor]
StatedOptimum = Callable[[Tensor, int], Weights]


def equation_8(S: Tensor, n: int, *, share: float = 1.0, trace: float = 1.0) -> Weights:
    """Equation (8) as printed: (n + share)/n λ + trace · (Σ_k λ_k)/n."""
    values, U = torch.linalg.eigh(S)
    inverse = 1 / ((n + share) / n * values + trace * values.sum() / n)
    b = torch.cat([S.new_zeros(len(S)), S.new_ones(1)])
    return b, -torch.cat([U * inverse @ U.mT, S.new_zeros(1, len(S))])


def isotropic(d: int, n: int, offset: int = 2) -> float:
    return -1 / ((n - 1) / n + (d + offset) / n)


def inverse(S: Tensor) -> Tensor:
    return torch.linalg.inv(S)


@claim(
    "ahn2023.theorem-1",
    "One layer's in-context loss has its global minimum at (8), for any covariance, and at its "
    "rescalings; it is unique, and for long prompts it is the inverse covariance.",
    where="Section 4, Theorem 1, with Appendix A",
    kind="equality",
    quick={"trials": 100, "starts": 5},
    full={"trials": 5000, "starts": 60},
    tiny={"trials": 12, "starts": 1},
    falsified={
        "n − 1 in place of n + 1": {"stated": lambda S, n: equation_8(S, n, share=-1.0)},
        "half the trace in (8)": {"stated": lambda S, n: equation_8(S, n, trace=0.5)},
        "b and A scaled alike": {"rescaled": lambda b, A, g: (g * b, g * A)},
        "d + 1 in place of d + 2": {"identity": lambda d, n: isotropic(d, n, 1)},
        "a fourth power in (6)": {"power": 4},
        "the limit is the inverse's root": {"limit": lambda S: torch.linalg.cholesky(inverse(S))},
        "one column less matters": {"columns": lambda d: d - 1},
        "unique as numbers, not up to scale": {"alike": lambda b, A: torch.cat([b[None].mT, A], 1)},
    },
)
def theorem_1(
    generator: torch.Generator,
    *,
    trials: int,
    starts: int,
    stated: StatedOptimum = equation_8,
    identity: Callable[[int, int], float] = isotropic,
    rescaled: Callable[..., Weights] = lambda b, A, g: (g * b, A / g),
    power: int = 2,
    limit: Callable[[Tensor], Tensor] = inverse,
    columns: Callable[[int], int] = lambda d: d,
    alike: Callable[[Tensor, Tensor], Tensor] = minima.product,
) -> Evidence:
    ends = minima.search_minima(generator, starts)
    lower, apart = _minimum(generator, trials, stated, ends)
    approach, rows = one_layer.check_limit(generator, stated, limit)
    parts = [
        one_layer.loss(generator, power),
        one_layer.check_dependence(generator, trials, columns),
        Part(printed=_gradient(generator, trials, stated)),
        Part(printed=lower.check()),
        Part(printed=_rescaling(generator, trials, stated, rescaled)),
        Part(printed=_isotropic(identity)),
        approach,
        minima.check_component_minimisers(generator, stated),
        minima.check_uniqueness(ends, stated, alike),
    ]
    numbers = {
        "largest difference of f − f(8) from its two squares": apart,
        **minima.summarise_searches(ends),
    }
    return Evidence(
        parts=parts,
        numbers=numbers,
        table=one_layer.tabulate_losses(),
        figures=[one_layer.draw_limit_figure(rows)],
    )


def _draw_case(generator: torch.Generator, k: int) -> tuple[Tensor, int]:
    """Draw a dense covariance (some without full rank) and a number of examples."""
    d = 1 + k % 5
    S = draw_covariance(generator, d, 100.0)
    if k % 5 > 0 and k % 3 == 0:
        half = draw_normal(generator, d, d - 1)
        S = half @ half.mT
    return S, (1, 2, 5, 20, 300)[draw_integer(generator, 0, 4)]


def _gradient(generator: torch.Generator, trials: int, stated: StatedOptimum) -> Check:
    trial = Equality("∇f = 0 at (8), in all entries of b and A, for any Σ", tolerance=1e-9)
    for k in range(trials):
        S, n = _draw_case(generator, k)
        b, A = (part.requires_grad_() for part in stated(S, n))
        slopes = torch.autograd.grad(SingleLayerLoss(S, n).loss(b, A), (b, A))
        slope = torch.cat([slopes[0], slopes[1].flatten()])
        trial.add(slope, torch.zeros_like(slope), size=(len(S), n), about=f"d = {len(S)}, n = {n}")
    return trial.check()


def _minimum(
    generator: torch.Generator, trials: int, stated: StatedOptimum, ends: list[minima.End]
) -> tuple[Inequality, float]:
    """Compare f(8) with other weights, and f − f(8) with its two squares."""
    trial = Inequality("f(8) ≤ f(b, A) for all b and A", rounding=1e-10)
    apart = 0.0
    for k in range(trials):
        S, n = _draw_case(generator, k)
        d, layer = len(S), SingleLayerLoss(S, n)
        best, (b0, A0) = stated(S, n), layer.optimum()
        for spread in (1.0, 0.1, 0.01):
            b = best[0] + spread * draw_normal(generator, d + 1)
            A = best[1] + spread * draw_normal(generator, d + 1, d)
            about = f"d = {d}, n = {n}, weights {spread} away"
            trial.add(layer.loss(*best), layer.loss(b, A), size=(d, n), about=about)
            off = layer.odd_coefficient(b, A) - layer.odd_coefficient(b0, A0)
            squares = ((S @ off @ layer.square_moment()) * off).sum() + layer.even_part(b, A)
            excess = layer.loss(b, A) - layer.loss(b0, A0)
            apart = max(apart, float((excess - squares).abs() / layer.loss(b, A)))
    for end in ends:
        layer = SingleLayerLoss(end.S, end.n)
        about = f"d = {layer.d}, n = {end.n}, where a search ended"
        at = layer.loss(*stated(end.S, end.n))
        trial.add(at, layer.loss(end.b, end.A), size=(layer.d, end.n), about=about)
    trial.search_note = (
        f"L-BFGS over b and A from {len(ends)} random starts, {minima.describe_effort(ends)}"
    )
    return trial, apart


def _rescaling(
    generator: torch.Generator, trials: int, stated: StatedOptimum, rescaled: Callable[..., Weights]
) -> Check:
    trial = Equality("f(γb, A/γ) = f(8) for γ ≠ 0", tolerance=1e-9)
    for k in range(trials):
        S, n = _draw_case(generator, k)
        layer, (b, A) = SingleLayerLoss(S, n), stated(S, n)
        gamma = float(10 ** draw_normal(generator).clamp(-2, 2)) * (-1) ** k
        left, right = layer.loss(*rescaled(b, A, gamma)), layer.loss(b, A)
        trial.add(left, right, size=(len(S), n), about=f"d = {len(S)}, n = {n}, γ = {gamma:.3g}")
    return trial.check()


def _isotropic(identity: Callable[[int, int], float]) -> Check:
    trial = Equality("Σ = I: A = −1/((n−1)/n + (d+2)/n) [I; 0]")
    for d in range(1, 9):
        for n in (1, 2, 3, 10, 1000):
            eye = torch.eye(d, dtype=torch.float64)
            _, A = SingleLayerLoss(eye, n).optimum()
            trial.add(identity(d, n) * eye, A[:d], size=(d, n), about=f"d = {d}, n = {n}")
    return trial.check()
