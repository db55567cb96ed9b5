"""Theorem A.12: gradient flow reaches every level of the loss, and the comparison that proves it.

Printed    dA/dt = −∇_A L(A, 0): for ξ ≥ 2(4δ)^{2L} and t ≥ (1/ξ)^{(L−1)/L}
           (16L/(L−1))^{(L−1)/(2L−1)}, L(A(t)) ≤ ξ; proof: with K = 16L/(L−1), g(0) = f(0) and
           g' = (1/16) g^{(2L−1)/L} (29) have the solution g = K^{L/(2L−1)}(t + c)^{−L/(L−1)},
           c = K^{(L−1)/(2L−1)}f(0)^{−(L−1)/L}
Tested     as theorem-3.3, (1); with Σ* other than I, of which nothing is said here; (29) by its
           derivative
Correction as theorem-3.3. In A rather than Σ*^½AΣ*^½ the flow is as slow as Σ* is small: after the
           time over λ_min(Σ*)² L(A(t)) ≤ ξ. (29) has g' = −(1/16) g^{(2L−1)/L}, and its solution is
           g = K^{L/(L−1)}(t + c)^{−L/(L−1)}, c = Kf(0)^{−(L−1)/L}: so the proof would give
           t ≥ K(1/ξ)^{(L−1)/L}
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.flows import (
    FALSIFIED,
    MORE_SIZES,
    SIZES,
    Time,
    check_arrivals,
    corrected_time,
    least_level,
    stated_time,
)
from innerloop.claims.gatmiry2024.landscape import identity
from innerloop.claims.prompts import draw_covariance
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.flow import gradient_flow, unwhitened_loss
from innerloop.theory.looped import LoopedLoss

Comparison = Callable[[Tensor, int, float], Tensor]
"""Map t, L and f(0) to g(t)."""


def comparison(t: Tensor, L: int, first: float) -> Tensor:
    K = 16 * L / (L - 1)
    c = K * first ** (-(L - 1) / L)
    return K ** (L / (L - 1)) * (t + c) ** (-L / (L - 1))


def _printed_comparison(t: Tensor, L: int, first: float) -> Tensor:
    K = 16 * L / (L - 1)
    c = K ** ((L - 1) / (2 * L - 1)) * first ** (-(L - 1) / L)
    return K ** (L / (2 * L - 1)) * (t + c) ** (-L / (L - 1))


@claim(
    "gatmiry2024.theorem-A.12",
    "Gradient flow on the loss of L loops is below ξ after a time of order ξ^{−(L−1)/L}.",
    where="Appendix A.1, Theorem A.12 and its proof",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 1, "dimensions": [10, 646]},
    full={"sizes": MORE_SIZES, "extra": 6, "dimensions": [10, 645, 646, 10**4, 10**6]},
    tiny={"sizes": [[1, 2]], "extra": 0, "dimensions": [646]},
    falsified={
        **FALSIFIED,
        "the time over λ_min": {"slower": lambda low: 1 / low},
        "the printed solution": {"solution": _printed_comparison},
    },
)
def theorem_a_12(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    extra: int,
    dimensions: list[int],
    time: Time = corrected_time,
    slower: Callable[[float], float] = lambda low: low**-2,
    solution: Comparison = comparison,
) -> Evidence:
    parts, _ = check_arrivals(generator, sizes, extra, dimensions, time)
    return Evidence(
        parts=[*parts, _check_small_covariance(generator, extra, slower), _check_solution(solution)]
    )


def _check_small_covariance(
    generator: torch.Generator, extra: int, slower: Callable[[float], float]
) -> Part:
    """Check two loops from A(0) = 0, with Σ* small in all directions or in some."""
    printed = Inequality("L(A(t)) ≤ ξ, whatever Σ* is")
    right = Inequality("L(A(t)) ≤ ξ after the time over λ_min(Σ*)²")
    n, L = 10**12, 2
    stars = [scale * identity(1) for scale in (0.01, 10.0)]
    stars += [draw_covariance(generator, 2, 10.0) for _ in range(1 + extra)]
    for star in stars:
        d, low = len(star), float(torch.linalg.eigvalsh(star)[0])
        xi = least_level(d, n, L)
        first = stated_time(d, L, xi, d)
        both = [first, corrected_time(d, L, xi, d) * slower(low)]
        times = torch.tensor(sorted({0.0, *both}), dtype=torch.float64)
        loss = unwhitened_loss(LoopedLoss(d, n, L), star)
        found = gradient_flow(loss, 0 * star, times, rtol=1e-6)
        losses = [float(found.losses[times.tolist().index(time)]) for time in both]
        about = f"d = {d}, L = {L}, n = {n}, λ_min(Σ*) = {low:.4g}, A(0) = 0, ξ = {xi:.4g}"
        printed.add(losses[0], xi, size=(d, low), about=about)
        right.add(losses[1], xi, size=(d, low), about=about)
    return Part(printed=printed.check(), corrected=right.check(), matters="result")


def _check_solution(solution: Comparison) -> Part:
    """Check that the solution given for (29) solves it."""
    printed = Equality("g' = g^{(2L−1)/L}/16 for g = K^{L/(2L−1)}(t + c)^{−L/(L−1)}")
    right = Equality("g' = −g^{(2L−1)/L}/16 and g(0) = f(0) for g = K^{L/(L−1)}(t + c)^{−L/(L−1)}")
    for L in (2, 3, 5):
        for first in (0.5, 1.0, 40.0):
            t = torch.tensor([0.0, 0.3, 5.0, 100.0], dtype=torch.float64, requires_grad=True)
            for trial, form, sign in ((printed, _printed_comparison, 1.0), (right, solution, -1.0)):
                g = form(t, L, first)
                (slope,) = torch.autograd.grad(g.sum(), t)
                rate = sign * g.detach() ** ((2 * L - 1) / L) / 16
                left = torch.cat([slope, g.detach()[:1]])
                known = torch.cat([rate, torch.tensor([first], dtype=torch.float64)])
                about = f"L = {L}, f(0) = {first}, g'(0) = {float(slope[0]):.4g}, stated "
                about += f"{float(rate[0]):.4g}"
                trial.add(left, known, size=(L, first), about=about)
    return Part(printed=printed.check(), corrected=right.check())
