"""Lemma A.7: Lemma 4.3 once more, for powers of A^½ΣA^½ − I.

Printed    E[A^{−½}(A^½ΣA^½ − I)^kA^½] can be written as E[(A^½ΣA^½ − I)^k] = Σ β_i u_i u_iᵀ, and
           with δ^k = 4kd/√n, |β_i − (λ_i − 1)^k| ≤ δ^k(λ_1 + 1)^k; (21), in the proof, expands
           the power as Σ_{i=1}^k (−1)^i C(k, i) (A^½ΣA^½)^i between A^{−½} and A^½
Tested     as lemma-4.3; the first equation and (21) on Σ* and A that do not commute
Correction E[A^{−½}(…)^kA^½] = A^{−½} Σ β_i u_i u_iᵀ A^½: equal to the printed sum where A and Σ*
           commute; (21) begins with i = 0 and has the sign (−1)^{k−i}; for n > d both bounds
           fail, they need n ≥ 4k²d² as in Lemma A.2
"""

from __future__ import annotations

from math import comb

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024 import moments
from innerloop.claims.gatmiry2024.lemma_4_2 import FALSIFIED
from innerloop.claims.gatmiry2024.lemma_4_3 import check_bounds, check_eigenvectors
from innerloop.claims.gatmiry2024.moments import NonCommuting
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Equality
from innerloop.theory.wishart import Wishart


@claim(
    "gatmiry2024.lemma-A.7",
    "E[A^{−½}(A^½ΣA^½ − I)^kA^½] is a sum over the eigenvectors of A^½Σ*A^½, its eigenvalues "
    "within 4kd/√n (λ_1 + 1)^k of (λ_i − 1)^k.",
    where="Appendix A.1, Lemma A.7, (21)",
    kind="inequality",
    quick={"trials": 120},
    full={"trials": 3000},
    tiny={"trials": 12},
    falsified={
        **FALSIFIED,
        "A^½ on both sides": {"sides": (1.0, 1.0)},
        "(21) with the sign (−1)^i": {"from_top": False},
    },
)
def lemma_a_7(
    generator: torch.Generator,
    *,
    trials: int,
    scale: float = 1.0,
    turned: bool = False,
    own: bool = True,
    sides: tuple[float, float] = (-1.0, 1.0),
    from_top: bool = True,
) -> Evidence:
    parts = [
        _check_conjugation(generator, max(4, trials // 10), sides),
        Part(printed=check_eigenvectors(generator, trials, own)),
        *check_bounds(generator, trials, "δ^k = 4kd/√n", moments.plain_width, scale, turned),
        _check_expansion(generator, trials, from_top),
    ]
    return Evidence(parts=parts)


def _check_conjugation(generator: torch.Generator, trials: int, sides: tuple[float, float]) -> Part:
    """Check E[A^{−½}(A^½ΣA^½ − I)^kA^½] = E[(ΣA − I)^k]: words in Σ and A against the sums."""
    printed = Equality("E[A^{−½}(A^½ΣA^½ − I)^kA^½] = Σ β_i u_i u_iᵀ", tolerance=1e-8)
    right = Equality("E[A^{−½}(A^½ΣA^½ − I)^kA^½] = A^{−½} Σ β_i u_i u_iᵀ A^½", tolerance=1e-8)
    for t in range(trials):
        case, k = NonCommuting.draw(generator, t), 1 + t % 3
        values, U = torch.linalg.eigh(case.A)
        left, after = ((U * values ** (power / 2)) @ U.mT for power in sides)
        found, inner = _shifted_moment(case, k), (-1) ** k * case.shifted_moment(k)
        size, about = (len(case.A), k), f"d = {len(case.A)}, n = {case.n}, k = {k}"
        printed.add(found, inner, size=size, about=about)
        right.add(found, left @ inner @ after, size=size, about=about)
    star = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    A = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    case = NonCommuting(star, A, 3)
    about = "Σ* = diag(4, 1), A = [[1, 1/2], [1/2, 1]], k = 1: ΣA − I is not symmetric on average"
    printed.add(_shifted_moment(case, 1), -case.shifted_moment(1), size=(0, 0), about=about)
    return Part(printed=printed.check(), corrected=right.check())


def _shifted_moment(case: NonCommuting, k: int) -> torch.Tensor:
    """The moment E[(ΣA − I)^k], entry by entry."""
    d = len(case.A)
    law, eye = Wishart(case.star / case.n, case.n), torch.eye(d, dtype=torch.float64)
    total = (-1) ** k * eye
    for j in range(1, k + 1):
        entries = torch.zeros_like(eye)
        for a in range(d):
            for b in range(d):
                last = case.A[:, b : b + 1] @ eye[a : a + 1]
                entries[a, b] = law.trace([*[case.A] * (j - 1), last])
        total = total + (-1) ** (k - j) * comb(k, j) * entries
    return total


def _check_expansion(generator: torch.Generator, trials: int, from_top: bool) -> Part:
    """Check (21) for single matrices: an expansion needs no expectation."""
    printed = Equality("(21): (M − I)^k = Σ_{i=1}^k (−1)^i C(k, i) M^i")
    right = Equality("(21) with i from 0 and the sign (−1)^{k−i}")
    for t in range(trials):
        d, k = 1 + t % 3, 1 + t % 5
        M = torch.ones(1, 1, dtype=torch.float64) if t == 0 else draw_normal(generator, d, d)
        powers = [torch.linalg.matrix_power(M, i) for i in range(k + 1)]
        found = torch.linalg.matrix_power(M - powers[0], k)
        stated = sum((-1) ** i * comb(k, i) * powers[i] for i in range(1, k + 1))
        sign = (-1) ** k if from_top else 1
        mended = sum(sign * (-1) ** i * comb(k, i) * powers[i] for i in range(k + 1))
        about = "M = 1, k = 1: 0 where −1 is stated" if t == 0 else f"d = {d}, k = {k}"
        printed.add(found, torch.as_tensor(stated), size=(d, k, t), about=about)
        right.add(found, torch.as_tensor(mended), size=(d, k, t), about=about)
    return Part(printed=printed.check(), corrected=right.check())
