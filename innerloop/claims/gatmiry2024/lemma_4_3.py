"""Lemmas 4.3 and A.7: E[(I − A^½ΣA^½)^k] is near (I − A^½Σ*A^½)^k, eigenvalue by eigenvalue.

Printed    A^½Σ*A^½ = Σ λ_i u_i u_iᵀ: for k ≤ 2L, E[(I − A^½ΣA^½)^k] = Σ β_i u_i u_iᵀ and
           |β_i − (1 − λ_i)^k| ≤ δ^k(λ_1 + 1)^k. Lemma A.7 has A^½ΣA^½ − I and λ_i − 1: (−1)^k times
           it, with δ^k = 4kd/√n
Reading    δ^k = 4kd/√n (see `moments`)
Tested     exact moments; the eigenvectors from words in Σ* and A that do not commute, the bounds
           as in lemma-4.2
Wrong      as in lemma-4.2 a condition on n is missing: d = 1, n = 2, L = 2, λ = 7, k = 4
Corrected  n ≥ k²d, for the width 4kd/√n; Lemma A.2's n ≥ 4k²d² is more than that
Proof      with α_i^(j) of lemma-4.2 and Lemma A.6, β_i − (1 − λ_i)^k = Σ_j C(k, j)(−1)^j(α_i^(j) −
           λ_i^j), and 0 ≤ α_i^(j) − λ_i^j ≤ (4jd/√n) λ_1^j for n ≥ k²d: its size is at most
           (4kd/√n) Σ_j C(k, j) λ_1^j = (4kd/√n)(1 + λ_1)^k
Beyond     at λ = 1 and k = 2L, β falls as n^{−L}, the bound as n^{−1/2}
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part, misprint
from innerloop.claims.gatmiry2024.moments import (
    FALSIFIED,
    NonCommuting,
    Rows,
    draw_spectra,
    judge_basis,
    judge_bounds,
    search_spectra,
)
from innerloop.claims.intervals import check_rate
from innerloop.theory.looped import isotropic_loss

EXAMPLES = [1000, 10_000, 100_000]


def judge_powers(rows: Rows) -> Evidence:
    basis = judge_basis(rows, "$E[(I − A^½ΣA^½)^k]$ has the eigenvectors of $A^½Σ*A^½$")
    return Evidence(
        parts=[
            Part(printed=basis),
            judge_bounds(rows, "$|β_i − (1 − λ_i)^k| ≤ {width} (λ_1 + 1)^k$"),
        ],
        errata=ERRATA,
        beyond=[_check_fall(loops) for loops in (1, 2, 3)],
    )


ERRATA = [
    replace(
        misprint(
            "Lemma A.7",
            "$E[A^{−½}(A^½ΣA^½ − I)^kA^½]$ can be written as $∑ β_i u_i u_iᵀ$",
            "$A^{−½} ∑ β_i u_i u_iᵀ A^½$: its eigenvalues are the $β_i$, which is what is used",
            "$k = 1$, $Σ* = diag(4, 1)$, $A = [[1, 1/2], [1/2, 1]]$: it is "
            "$Σ*A − I = [[3, 2], [1/2, 0]]$, which is not symmetric",
        ),
        grade="step",
    ),
    misprint(
        "Lemma 4.3",
        "the sums over eigenvectors run to $n$",
        "to $d$",
        "$A^½Σ*A^½$ is $d × d$, and $n > d$",
    ),
    misprint(
        "proof of Lemma A.7, (21)",
        "$(M − I)^k = ∑_{i=1}^k (−1)^i C(k, i) M^i$",
        "$∑_{i=0}^k (−1)^{k−i} C(k, i) M^i$",
        "$M = 1$, $k = 1$: 0 on the left, −1 on the right",
    ),
]


def _check_fall(loops: int) -> Check:
    return check_rate(
        f"$β$ falls as $n^{{−{loops}}}$ at $λ = 1$, $k = {2 * loops}$, $d = 3$",
        EXAMPLES,
        [float(isotropic_loss(3, n, loops, Fraction(1))) for n in EXAMPLES],
        -float(loops),
        within=0.05,
        what="n",
        ours="a twentieth of a power",
    )


@claim(
    "gatmiry2024.lemma-4.3",
    "$E[(I − A^½ΣA^½)^k]$ shares the eigenvectors of $A^½Σ*A^½$, with eigenvalues within "
    "$δ^k (λ_1 + 1)^k$ of $(1 − λ_i)^k$.",
    where="Section 4, Lemma 4.3",
    kind="inequality",
    hypotheses={
        "$A$ positive semidefinite": "$A^½$, in the lemma",
        "$n > d$": "Section 3.2",
        "$k ≤ 2L$": "Lemma 4.3",
    },
    restates={"gatmiry2024.lemma-A.7": "Appendix A.1, Lemma A.7, (21)"},
    quick={"trials": 120, "searched": [[1, 1], [2, 1], [2, 2], [3, 2]]},
    full={"trials": 3000, "searched": [[1, 1], [2, 1], [2, 2], [3, 2], [3, 3], [4, 3]]},
    tiny={"trials": 8, "searched": [[2, 1]]},
    judge=judge_powers,
    falsified=FALSIFIED,
)
def lemma_4_3(generator: torch.Generator, *, trials: int, searched: list[list[int]]) -> Rows:
    rows = search_spectra(searched, shifted=True)
    for spectrum in draw_spectra(generator, trials):
        rows += spectrum.list_rows(shifted=True)
    for t in range(max(4, trials // 10)):
        pair, k = NonCommuting.draw(generator, t + 1), 2 + t % 2
        case = Case(d=len(pair.A), k=k, n=pair.n)
        rows.append({"case": case, "matrix": pair.shifted_moment(k), "basis": pair.inner()})
    return rows
