"""Theorem 7: a transformer runs the power method with deflation, and the error it then has.

Printed    L = 2τ + 4k + 1 layers, τ ≤ log(1/(ε₀δ))/ε₀, starts with p_iᵀv_i ≥ δ,
           Δ = min_{i<j≤k} |λ_i − λ_j|:
           ‖v_{η+1} − 𝐯_{η+1}‖ ≤ Cτελ₁² + (Cλ₁√ε₀/Δ) ∏_{i=1}^k 5λ_{i+1}/Δ, and jointly
           ≤ Cτεkλ₁² + C(ε₀λ₁²/Δ² Σ_{η=1}^{k−1} ∏_{i=1}^η 25λ_{i+1}²/Δ²)^½. The proof: after
           log(1/(ε₀δ))/(2ε₀) iterations pᵀv₁ ≥ 1 − ε₀; a_{η+1} ≤ (max b_i + Σ 2λ_i a_i)/Δ
Tested     Algorithm 1 in float64 (ε = 0, the second terms), spectra that satisfy the hypotheses,
           starts at exactly δ; the layers that the proof lists, added up; the built transformer
           `pca` against Algorithm 1 (the first terms)
Correction 2kτ + 4k + 1 layers; τ ≥ log(1/(δ√ε₀))/log(λ_η/λ_{η+1}): a number of iterations that
           depends on ε₀ alone cannot know the gap; Δ = min_{i≤k} (λ_i − λ_{i+1}), as v_k is found
           against λ_{k+1}; the product to η, as λ_{k+1} may be 0; the sum from η = 0, as it leaves
           out v₁; and in the recursion the component's own error, with 2√2 Σ(b_i + λ_i a_i)/Δ from
           Davis and Kahan
Beyond     `pca` needs 3 heads and 4kτ + 5k + 1 blocks, in place of λ₁^d C/ε² heads
Note       starts uniform on the sphere satisfy p_iᵀv_i ≥ δ with probability below 2^(−k)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import draw_integer
from innerloop.claims.qliu2025 import deflation
from innerloop.claims.trials import Equality, Inequality
from innerloop.constructions.base import iterate_streams, read_prediction
from innerloop.constructions.pca import PCAConstruction
from innerloop.problems.principal_components import PrincipalComponents

EPSILONS, DELTA, C, ROUNDING = (0.1, 0.01, 1e-4), 0.1, 4.0, 1e-9


def count_layers(tau: int, k: int) -> int:
    """Layers: the covariance, then per component two per iteration and four to deflate."""
    return 1 + k * (2 * tau + 4)


@claim(
    "qliu2025.theorem-7",
    "A transformer finds k principal components by the power method with deflation, with an error "
    "from its approximations and one from finitely many iterations.",
    where="Theorem 7 and its proof",
    kind="inequality",
    quick={"trials": 60, "knots": [400, 1_600]},
    full={"trials": 3_000, "knots": [400, 4_000, 40_000]},
    tiny={"trials": 4, "knots": [60]},
    falsified={
        "a layer less for each component": {"layers": lambda tau, k: 1 + k * (2 * tau + 3)},
        "a hundredth of the iterations": {"share": 0.01},
        "the bounds with C = 4/10⁵": {"constant": C / 1e5},
        "a recursion without the component's own error": {"own": 0.0},
        "a transformer that is closer by 10⁻⁶": {"closer": 1e-6},
    },
)
def theorem_7(
    generator: torch.Generator,
    *,
    trials: int,
    knots: list[int],
    layers: Callable[[int, int], int] = count_layers,
    share: float = 1.0,
    constant: float = C,
    own: float = 1.0,
    closer: float = 1.0,
) -> Evidence:
    depth = Equality("the proof's layers number 2τ + 4k + 1")
    deeper = Equality("the proof's layers number 2kτ + 4k + 1")
    for tau in (1, 3, 10):
        for k in (1, 2, 5):
            about = f"τ = {tau}, k = {k}: {count_layers(tau, k)} layers"
            depth.add(2 * tau + 4 * k + 1, count_layers(tau, k), size=(k, tau), about=about)
            deeper.add(layers(tau, k), 2 * k * tau + 4 * k + 1, size=(k, tau), about=about)
    enough, more = _iterations(generator, trials, share)
    bounds = _bounds(generator, trials, share, constant, own)
    run, numbers = _compare_construction(generator, knots, closer)
    return Evidence(
        parts=[
            Part(printed=depth.check(), corrected=deeper.check(), matters="result"),
            Part(printed=enough.check(), corrected=more.check(), matters="result"),
            *(Part(printed=a.check(), corrected=b.check()) for a, b in bounds),
            Part(printed=run.check()),
        ],
        numbers=numbers,
    )


def _iterations(
    generator: torch.Generator, trials: int, share: float
) -> tuple[Inequality, Inequality]:
    """Check 1 − ε₀ ≤ pᵀv₁ after the printed τ and after the corrected one."""
    printed = Inequality("pᵀv₁ ≥ 1 − ε₀ after τ = log(1/(ε₀δ))/ε₀, √λ₁ − √λ₂ ≥ 1")
    proper = Inequality("pᵀv₁ ≥ 1 − ε₀ after τ ≥ log(1/(δ√ε₀))/log(λ₁/λ₂)", rounding=1e-9)
    for trial in range(trials):
        d = draw_integer(generator, 2, 5)
        roots = 100 ** torch.rand(d, generator=generator, dtype=torch.float64)
        roots = roots.sort(descending=True).values
        roots[0] = roots[1] + 1
        if trial == 0:
            d, roots = 2, torch.tensor([100.0, 99.0], dtype=torch.float64)
        spectrum = roots**2
        A, vectors = deflation.draw_matrix(generator, spectrum)
        first = deflation.draw_start(generator, vectors[:, 0], DELTA)
        for epsilon in EPSILONS[:2]:
            needed = deflation.proper_tau(epsilon, DELTA, *spectrum[:2].tolist())
            for found, tau in (
                (printed, deflation.printed_tau(epsilon, DELTA)),
                (proper, math.ceil(share * needed)),
            ):
                a = deflation.run_deflation(A, vectors, spectrum, [first], [tau]).a[0]
                ends = f"λ₁ = {float(spectrum[0]):.5g}, λ₂ = {float(spectrum[1]):.5g}"
                about = f"d = {d}, {ends}, δ = {DELTA}, ε₀ = {epsilon}, τ = {tau}, 1 − ε₀ and pᵀv₁"
                found.add(1 - epsilon, 1 - a * a / 2, size=(d, -epsilon, trial), about=about)
    return printed, proper


def _bounds(
    generator: torch.Generator, trials: int, share: float, constant: float, own: float
) -> list[tuple[Inequality, Inequality]]:
    """Check the single, joint and recursive bounds, as printed and as corrected."""
    single = (
        Inequality(f"‖v_(η+1) − 𝐯_(η+1)‖ ≤ Cλ₁√ε₀/Δ ∏_1^k 5λ_(i+1)/Δ, C = {C:g}"),
        Inequality("the same, ∏_1^η, Δ = min_{i≤k}(λ_i − λ_(i+1)), τ from the gaps"),
    )
    joint = (
        Inequality(f"jointly ≤ C(ε₀λ₁²/Δ² Σ_{{η=1}}^(k−1) ∏_1^η 25λ²/Δ²)^½, C = {C:g}"),
        Inequality("the same, Σ from η = 0, Δ and τ as above"),
    )
    recursion = (
        Inequality("a_(η+1) ≤ (max b_i + Σ 2λ_i a_i)/Δ"),
        Inequality("a_(η+1) ≤ own error + 2√2 Σ(b_i + λ_i a_i)/Δ", rounding=1e-9),
    )
    for trial in range(trials):
        for epsilon in EPSILONS:
            spectrum, k = _spectrum(generator, trial, epsilon)
            A, vectors = deflation.draw_matrix(generator, spectrum)
            starts = [deflation.draw_start(generator, vectors[:, i], DELTA) for i in range(k)]
            ends = spectrum.tolist()
            told = f"λ = ({', '.join(f'{v:.6g}' for v in ends)}), k = {k}, ε₀ = {epsilon}"
            size = (len(ends), k, trial, -epsilon)
            wide = min(a - b for a, b in pairwise(ends[: k + 1]))
            narrow = min((a - b for a, b in pairwise(ends[:k])), default=wide)
            needed = [deflation.proper_tau(epsilon, DELTA, *ends[i : i + 2]) for i in range(k)]
            for which, taus, gap in (
                (0, [deflation.printed_tau(epsilon, DELTA)] * k, narrow),
                (1, [math.ceil(share * tau) for tau in needed], wide),
            ):
                found = deflation.run_deflation(A, vectors, spectrum, starts, taus)
                scale = (constant if which else C) * ends[0] * math.sqrt(epsilon) / gap
                factors = [5 * ends[i] / gap for i in range(1, k + 1)]
                for eta in range(1, k):
                    product = math.prod(factors[:eta] if which else factors)
                    about = f"{told}, τ = {taus[eta]}, η = {eta}"
                    error = max(found.a[eta] - ROUNDING, 0.0)
                    single[which].add(error, scale * product, size=size, about=about)
                    for form, by, share_of in ((0, narrow, None), (1, wide, own)):
                        right = _recursion(found, ends, eta, by, share_of)
                        recursion[form].add(error, right, size=size, about=about)
                total = sum(math.prod(factors[:eta]) ** 2 for eta in range(1 - which, k))
                together = max(math.hypot(*found.a) - ROUNDING, 0.0)
                about = f"{told}, τ = {taus[0]}"
                joint[which].add(together, scale * math.sqrt(total), size=size, about=about)
    return [single, joint, recursion]


def _recursion(
    found: deflation.DeflationErrors, values: list[float], eta: int, gap: float, own: float | None
) -> float:
    """The bound on a_{η+1}: as printed, or with `own` times the component's own error."""
    past = list(zip(values[:eta], found.a[:eta], found.b[:eta], strict=True))
    if own is None:
        return (max(found.b[:eta]) + sum(2 * value * a for value, a, _ in past)) / gap
    given = sum(b + value * a for value, a, b in past)
    return own * found.own[eta] + 2 * math.sqrt(2) * given / gap


def _spectrum(generator: torch.Generator, trial: int, epsilon: float) -> tuple[Tensor, int]:
    """Draw a spectrum: first λ_{k+1} = 0, λ_{k+1} near λ_k, one component; then random ones."""
    given = {
        0: ([10.0, 9.0, 0.0], 2),
        1: ([3.0, 1.0, 1.0 - epsilon**2], 2),
        2: ([10.0, 9.0], 1),
    }
    if trial in given:
        values, k = given[trial]
        return torch.tensor(values, dtype=torch.float64), k
    k = draw_integer(generator, 1, 3)
    ratios = 0.2 + 0.6 * torch.rand(k + 2, generator=generator, dtype=torch.float64)
    spectrum = 5 * torch.cumprod(ratios, 0)
    if trial % 2:
        spectrum[k] = (1 - 0.005) * spectrum[k - 1]
        spectrum[k + 1] = 0.5 * spectrum[k]
    return spectrum, k


def _compare_construction(
    generator: torch.Generator, knots: list[int], closer: float
) -> tuple[Inequality, dict[str, float]]:
    """Compare the built transformer with Algorithm 1: the first error term."""
    found = Inequality("the built transformer is within its bound of Algorithm 1, ε from its knots")
    numbers: dict[str, float] = {}
    for count in knots:
        built = PCAConstruction(d=4, n=10, steps=4, components=2, knots=count)
        problem = PrincipalComponents(d=4, n=10, components=2).sample(4, generator=generator)
        *_, stream = iterate_streams(built, built.transformer, problem)
        *_, state = built.algorithm.states(problem, built.steps)
        off = (
            (read_prediction(built, built.transformer, problem, stream) - state.vectors).abs().max()
        )
        allowed = closer * built.steps * built.tolerance(torch.float64)
        found.add(off, allowed, size=(count,), about=f"{count} knots")
        numbers[f"deviation from Algorithm 1, {count} knots"] = float(off)
    numbers["heads per layer as built"] = 3
    return found, numbers
