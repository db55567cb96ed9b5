"""Lemma A.10: the bound on the gradient behind gradient dominance.

Printed    Σ* = I, 8δd^{3/(4L)} ≤ ε ≤ 1 and 4dδ^{4L−2} ≤ 1: L(A, 0) ≥ ε^{2L} + dδ^{2L}(ε + 2)^{2L}
           implies ‖∇L(A, 0)‖² ≥ ¼ε^{4L−2}; the proof's Hölder inequality is
           Σ(λ_i − 1)^{4L−2} ≥ d^{−(L−1)/(2L−1)} (Σ(λ_i − 1)^{2L})^{(2L−1)/L}
Tested     both forms of L(A, 0), as in theorem-A.11, at the smallest n that the conditions allow
           and far above it, ε from its least value to 1, from the level out; multiples of the
           identity in fractions, for d of any size
Correction ‖∇L‖² ≥ ¼d^{−(L−1)/L}ε^{4L−2}. As printed it fails at L = 2, d = 10⁶, A = 0.96I, ε = 1,
           n = 10⁶⁰: the loss is 2.56 and ‖∇L‖² = 16·0.04⁶·10⁶ = 0.0655. For L = 2 it can fail from
           d = 4097 on (4L² < d^{(L−1)/L}/4). Hölder gives d^{−(L−1)/L}: with all λ_i − 1 equal to
           1, d = 2 and L = 2 the printed inequality says 2 ≥ 2^{−1/3}·2^{3/2} = 2.24
Note       the conditions ask for n ≥ 64·8^{4L}·L²d⁵: 262 144 at L = d = 1, 1.4·10¹¹ at L = d = 2
"""

from __future__ import annotations

from fractions import Fraction

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.landscape import (
    FORMS,
    Factor,
    delta,
    draw_at_level,
    hoelder_factor,
    loss_and_squared_gradient,
)
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Inequality
from innerloop.theory.looped import LoopedLoss, isotropic_loss

SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [2, 3]]


def least_examples(d: int, L: int) -> int:
    """The smallest n for which some ε ≤ 1 is allowed: 8δd^{3/(4L)} ≤ 1 and 4dδ^{4L−2} ≤ 1."""
    small = min(d ** (-3 / (4 * L)) / 8, (4 * d) ** (-1 / (4 * L - 2)))
    return int((8 * L * d / small ** (2 * L)) ** 2 * 1.001) + 1


def level(epsilon: float, small: float, d: int, L: int) -> float:
    return epsilon ** (2 * L) + d * (small * (epsilon + 2)) ** (2 * L)


@claim(
    "gatmiry2024.lemma-A.10",
    "Above the loss ε^{2L} + dδ^{2L}(ε + 2)^{2L} the squared gradient is at least ε^{4L−2}/4.",
    where="Appendix A.1, Lemma A.10 and its proof",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 6},
    full={"sizes": [*SIZES, [3, 2]], "extra": 60},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 1},
    falsified={
        "a thousand times the factor": {"factor": lambda d, L: 1000 * hoelder_factor(d, L)},
        "Hölder without d": {"norms": lambda d, L: 1.0},
    },
)
def lemma_a_10(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    extra: int,
    factor: Factor = hoelder_factor,
    norms: Factor = hoelder_factor,
) -> Evidence:
    parts = []
    for name, loss in FORMS.items():
        printed = Inequality(f"‖∇L‖² ≥ ε^{{4L−2}}/4, L {name}")
        right = Inequality(f"‖∇L‖² ≥ d^{{−(L−1)/L}} ε^{{4L−2}}/4, L {name}")
        both: list[tuple[Inequality, Factor]] = [(printed, lambda d, L: 1.0), (right, factor)]
        for d, L in sizes:
            for n in (least_examples(d, L), 10**4 * least_examples(d, L)):
                law, small = LoopedLoss(d, n, L), delta(L, d, n)
                low = 8 * small * d ** (3 / (4 * L))
                for epsilon in (low, (low + 1) / 2, 1.0):
                    most = level(epsilon, small, d, L)
                    for times in (1.0, 100.0):
                        B = draw_at_level(generator, law, loss, most * times, extra)
                        _, slopes = loss_and_squared_gradient(law, B, loss)
                        about = f"d = {d}, L = {L}, n = {n:.4g}, ε = {epsilon:.4g}"
                        for slope in slopes:
                            for trial, of in both:
                                left = of(d, L) * epsilon ** (4 * L - 2) / 4
                                trial.add(left, slope, size=(d, L, n), about=about)
        _isotropic(both)
        parts.append(Part(printed=printed.check(), corrected=right.check()))
    numbers = {f"least n for L = {L}, d = {d}": float(least_examples(d, L)) for d, L in sizes}
    numbers |= {
        f"largest d for which all equal λ satisfy it, L = {L}": int((16 * L * L) ** (L / (L - 1)))
        for L in (2, 3, 4, 5)
    }
    return Evidence(parts=[*parts, _norms(generator, norms)], numbers=numbers)


def _isotropic(both: list[tuple[Inequality, Factor]]) -> None:
    """Check A = aI near the level of ε = 1, for many features."""
    for d, L, a in (
        (10**6, 2, Fraction(96, 100)),
        (10**5, 4, Fraction(3, 4)),
        (30, 2, Fraction(0)),
    ):
        n = 10**60
        value = float(isotropic_loss(d, n, L, a))
        slope = float(isotropic_loss(d, n, L, a, 1)) ** 2 / d
        small = delta(L, d, n)
        if n < least_examples(d, L) or value < level(1.0, small, d, L):
            raise ValueError(f"the lemma's conditions do not hold at d = {d}, L = {L}")
        about = f"A = {float(a)}·I, d = {d}, L = {L}, ε = 1, n = 10⁶⁰, loss {value:.5g}"
        for trial, of in both:
            trial.add(of(d, L) / 4, slope, size=(d, L), about=about)


def _norms(generator: torch.Generator, norms: Factor) -> Part:
    """Check the proof's step from the 2L-norm to the (4L − 2)-norm."""
    printed = Inequality("Σ|z|^{4L−2} ≥ d^{−(L−1)/(2L−1)} (Σ|z|^{2L})^{(2L−1)/L}")
    right = Inequality("Σ|z|^{4L−2} ≥ d^{−(L−1)/L} (Σ|z|^{2L})^{(2L−1)/L}")
    for d in range(1, 6):
        for L in range(1, 5):
            for k in range(8):
                z = torch.ones(d, dtype=torch.float64) if k == 0 else draw_normal(generator, d)
                high, low = (z ** (4 * L - 2)).sum(), (z ** (2 * L)).sum() ** ((2 * L - 1) / L)
                about = f"d = {d}, L = {L}, " + ("all |z| = 1" if k == 0 else "z at random")
                stated = d ** (-(L - 1) / (2 * L - 1)) * low
                printed.add(stated, high, size=(d, L, k), about=about)
                right.add(norms(d, L) * low, high, size=(d, L, k), about=about)
    return Part(printed=printed.check(), corrected=right.check())
