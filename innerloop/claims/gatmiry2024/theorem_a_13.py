"""Theorem A.13: Theorem 4.5 once more, under a wider condition.

Printed    ζΣ* ≼ Σ^out ≼ (2 − ζ)Σ* (30), the rest as in Theorem 4.5; proof: with r = 16δd^{1/(2L)},
           (1 − r)A^{opt −1} ≼ Σ* ≼ (1 + r)A^{opt −1} and (30) give (31),
           ‖I − A^{opt ½}Σ^outA^{opt ½}‖ ≤ 1 + r − ζ
Tested     as theorem-4.5; (31) from what is said to imply it, and for A^opt = bΣ*⁻¹
Correction Σ^out = XXᵀ/n and the norms exchanged, as there. (31) does not follow: the matrix in
           it may reach (2 − ζ)(1 + r), 1 + r(2 − ζ) − ζ from 1; it holds as A^opt is below Σ*⁻¹
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.landscape import delta
from innerloop.claims.gatmiry2024.theorem_4_5 import (
    FALSIFIED,
    Norms,
    check_transfer,
    exchanged_norms,
)
from innerloop.claims.trials import Inequality
from innerloop.theory.looped import isotropic_minimum


@claim(
    "gatmiry2024.theorem-A.13",
    "On an instance whose covariance lies between ζΣ* and (2 − ζ)Σ* the minimiser's squared error "
    "shrinks as (1 − ζ)^{2L}, up to δ.",
    where="Appendix A.1, Theorem A.13, (30) and (31)",
    kind="inequality",
    quick={"trials": 1500},
    full={"trials": 40_000},
    tiny={"trials": 100},
    falsified={**FALSIFIED, "(31) a tenth lower": {"less": 0.1}},
)
def theorem_a_13(
    generator: torch.Generator,
    *,
    trials: int,
    scale: float = 1.0,
    norms: Norms = exchanged_norms,
    less: float = 0.0,
) -> Evidence:
    found = check_transfer(generator, trials, lambda zeta: zeta, scale, norms)
    parts = [*found.parts, _contraction(less)]
    return Evidence(parts=parts, numbers=found.numbers)


def _contraction(less: float) -> Part:
    """Check (31) at the ends of what the theorem assumes."""
    printed = Inequality("(31) from (30) and A^opt within 1 ± r of Σ*⁻¹")
    right = Inequality("(31) from (30) and A^opt = bΣ*⁻¹", rounding=1e-9)
    for d in (1, 2, 5):
        for L in (1, 2, 4):
            for n in (d + 1, 10**6, 10**12, 10**40):
                r = 16 * delta(L, d, n) * d ** (1 / (2 * L))
                b = 1 - isotropic_minimum(d, n, L)
                for zeta in (0.1, 0.5, 0.9):
                    about = f"d = {d}, L = {L}, n = {n:.3g}, ζ = {zeta}, r = {r:.3g}"
                    size, allowed = (d, L, n), 1 + r - zeta
                    furthest = (2 - zeta) * (1 + r) - 1
                    printed.add(furthest, allowed, size=size, about=about)
                    ends = max(abs(1 - b * zeta), abs(1 - b * (2 - zeta)))
                    right.add(ends, allowed - less, size=size, about=about)
    return Part(printed=printed.check(), corrected=right.check())
