"""Lemmas 4.2, 4.3, A.5 and A.7: moments of a sample covariance are near powers of the covariance.

Printed    (4.2, A.5) x̃ᵢ ~ N(0, Σ̃), Σ̃ = Σ λ_j u_j u_jᵀ, λ_1 ≥ … ≥ λ_d: for 1 ≤ k ≤ 2L the k-th
           moment of the sample covariance is Σ α_j u_j u_jᵀ, and |α_j − λ_j^k| ≤ δ^kλ_1^k.
           (4.3, A.7) A^½Σ*A^½ = Σ λ_i u_i u_iᵀ: for k ≤ 2L, E[(I − A^½ΣA^½)^k] = Σ β_i u_i u_iᵀ and
           |β_i − (1 − λ_i)^k| ≤ δ^k(λ_1 + 1)^k; A.7 has A^½ΣA^½ − I and λ_i − 1: (−1)^k times it
Reading    δ^k = 4kd/√n (see `moments`); with δ of section 3.5 the examples below break it as well
Tested     exact moments, λ over two decades, all equal, and of the source's hard matrices, d ≤ 4,
           L ≤ 4, every k, n from d + 1 on; a search over λ at the least n of the correction; in 4.3
           the eigenvectors from words in Σ* and A that do not commute
Wrong      a condition on n is missing, which Lemma A.2 has (n ≥ 4k²d²) and the proof takes from
           there: d = 1, n = 2, L = 2 has E[s⁴] = 24 (s is an exponential), the bound 1 + 16/√2; in
           4.3 the same sizes with λ = 7, k = 4
Corrected  n ≥ k²d, for the width 4kd/√n; Lemma A.2's n ≥ 4k²d² is more than that. With δ of section
           3.5 it is not enough (d = 1, n = 100, k = 10, L = 70, λ = 1 has α − 1 = 1.3346 and
           δ^k = 1.3331). δ ≤ 1, that is n ≥ 64L²d², is enough, and theorem-3.2 requires it: for
           k ≤ 2L then δ^k = (8Ld/√n)^{k/(2L)} ≥ 8Ld/√n ≥ 4kd/√n, and n ≥ k²d
Proof      by Isserlis' theorem α_j = Σ_p n^{C(G_p) − k} ∏_{c ≠ c*} tr(Σ̃^{|c|}) λ_j^{|c*|} over the
           pairings p. The one with C(G_p) = k gives λ_j^k; every term is positive and at most
           λ_1^k times its value at Σ̃ = I: λ_j^k ≤ α_j ≤ λ_j^k + λ_1^k(α − 1), α that of Lemma A.2,
           which is at most 1 + 4kd/√n for n ≥ k²d (lemma-A.2). With these α_i^(j) and Lemma A.6,
           β_i − (1 − λ_i)^k = Σ_j C(k, j)(−1)^j(α_i^(j) − λ_i^j), whose size is at most
           (4kd/√n) Σ_j C(k, j) λ_1^j = (4kd/√n)(1 + λ_1)^k
Beyond     the lower bound of 4.2 needs no δ; α_j − λ_j^k falls as 1/n, not as 1/√n. In 4.3 at λ = 1
           and k = 2L, β falls as n^{−L}, the bound as n^{−1/2}
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Erratum, Evidence, Part, misprint
from innerloop.claims.gatmiry2024.moments import (
    FALSIFIED,
    NonCommuting,
    Rows,
    judge_basis,
    judge_bounds,
    measure_spectra,
)
from innerloop.claims.intervals import check_rate
from innerloop.claims.prompts import draw_covariance
from innerloop.claims.trials import Inequality, as_erratum, check_rows
from innerloop.theory.looped import isotropic_loss, isotropic_moments
from innerloop.theory.wishart import Wishart

PRESETS: dict[str, Any] = {
    "kind": "inequality",
    "quick": {"trials": 120, "searched": [[1, 1], [2, 1], [2, 2], [3, 2]]},
    "full": {"trials": 3000, "searched": [[1, 1], [2, 1], [2, 2], [3, 2], [3, 3], [4, 3]]},
    "tiny": {"trials": 8, "searched": [[2, 1]]},
    "falsified": FALSIFIED,
}


def judge_moments(rows: Rows) -> Evidence:
    low = check_rows(
        Inequality("$λ_j^k ≤ α_j$ for every $n$", rounding=1e-9),
        ((row["case"], row["center"], row["moment"]) for row in rows if "moment" in row),
    )
    n = [100, 1000, 10_000, 100_000]
    excess = [float(isotropic_moments(3, m, 4)[4] - 1) for m in n]
    fall = _check_fall("$α − λ^k$ falls as $1/n$ at $λ = 1$, $k = 4$, $d = 3$", n, excess, -1)
    basis = judge_basis(rows, "the k-th moment has the eigenvectors of the covariance")
    return Evidence(
        parts=[
            Part(printed=basis),
            judge_bounds(rows, "$|α_j − λ_j^k| ≤ {width} λ_1^k$"),
        ],
        errata=[_judge_third_line(rows), *SLIPS],
        beyond=[low, fall],
    )


def _judge_third_line(rows: Rows) -> Erratum:
    """Check the proof's bound on the sum over pairings, which is that of the identity."""
    printed = Inequality("$α_j ≤ λ_j^k ∑_p n^{C(G_p) − k} d^{C(G'_p) − 1}$", rounding=1e-9)
    right = Inequality(
        "$α_j ≤ λ_j^k + λ_1^k (∑_p n^{C(G_p) − k} d^{C(G'_p) − 1} − 1)$", rounding=1e-9
    )
    for row in (row for row in rows if "moment" in row):
        case = row["case"]
        d, n, k = (case[name] for name in ("d", "n", "k"))
        total = float(isotropic_moments(d, n, k)[k])
        working = ("", f"{row['center']:.6g} · {total:.6g}")
        printed.add(row["moment"], total * row["center"], case, working=working)
        right.add(row["moment"], row["center"] + (total - 1) * row["top"], case)
    return as_erratum("proof of Lemma A.5, the third line of the last display", printed, right)


SLIPS = [
    misprint(
        "Lemma A.5",
        "$|α_j − λ_j^k| ≤ δλ_1^k$, where Lemma 4.2 has $δ^k$, and no range of $k$",
        "$4kd/√n$, with which the proof ends",
        "$L = 1$, $k = 2$: $4kd/√n$ is $δ²$, not $δ$, with $δ$ of section 3.5",
    ),
    misprint(
        "proof of Lemma A.5, first display",
        "$λ^{|c*|} v vᵀ$ with $v = √λ u$",
        "$λ^{|c*| − 1} v vᵀ$, as in the next line",
        "$k = 1$: $E[x xᵀ] = ∑ λ_i u_i u_iᵀ$, and the display has $λ_i²$",
    ),
]


@claim(
    "gatmiry2024.lemma-4.2",
    "Moments of the sample covariance share its law's eigenvectors, with eigenvalues "
    "within $δ^k λ_1^k$ of $λ_j^k$ (in Lemma A.5 within $δ λ_1^k$).",
    where="Section 4, Lemma 4.2",
    hypotheses={"$n > d$": "Section 3.2", "$1 ≤ k ≤ 2L$": "Lemma 4.2"},
    restates={"gatmiry2024.lemma-A.5": "Appendix A.1, Lemma A.5"},
    judge=judge_moments,
    **PRESETS,
)
def lemma_4_2(generator: torch.Generator, *, trials: int, searched: list[list[int]]) -> Rows:
    rows = measure_spectra(generator, trials, searched, shifted=False)
    for t in range(trials):
        d, n, k = 2 + t % 3, 3 + t % 5, 2 + t % 5
        basis = draw_covariance(generator, d, 20.0)
        matrix = Wishart(basis / n, n).power(k)
        rows.append({"case": Case(d=d, n=n, k=k), "matrix": matrix, "basis": basis})
    return rows


def _check_fall(statement: str, n: list[int], values: list[float], power: int) -> Check:
    ours = "a twentieth of a power"
    return check_rate(statement, n, values, float(power), within=0.05, what="n", ours=ours)


def judge_powers(rows: Rows) -> Evidence:
    basis = judge_basis(rows, "$E[(I − A^½ΣA^½)^k]$ has the eigenvectors of $A^½Σ*A^½$")
    n, beyond = [1000, 10_000, 100_000], []
    for L in (1, 2, 3):
        statement = f"$β$ falls as $n^{{−{L}}}$ at $λ = 1$, $k = {2 * L}$, $d = 3$"
        values = [float(isotropic_loss(3, m, L, Fraction(1))) for m in n]
        beyond.append(_check_fall(statement, n, values, -L))
    return Evidence(
        parts=[
            Part(printed=basis),
            judge_bounds(rows, "$|β_i − (1 − λ_i)^k| ≤ {width} (λ_1 + 1)^k$"),
        ],
        errata=ERRATA,
        beyond=beyond,
    )


ERRATA = [
    misprint(
        "Lemma A.7",
        "$E[A^{−½}(A^½ΣA^½ − I)^kA^½]$ can be written as $∑ β_i u_i u_iᵀ$",
        "$E[(A^½ΣA^½ − I)^k]$, as in the display below; only its eigenvalues are used",
        "$k = 1$, $Σ* = diag(4, 1)$, $A = [[1, 1/2], [1/2, 1]]$: it is "
        "$Σ*A − I = [[3, 2], [1/2, 0]]$, which is not symmetric",
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


@claim(
    "gatmiry2024.lemma-4.3",
    "$E[(I − A^½ΣA^½)^k]$ shares the eigenvectors of $A^½Σ*A^½$, with eigenvalues within "
    "$δ^k (λ_1 + 1)^k$ of $(1 − λ_i)^k$.",
    where="Section 4, Lemma 4.3",
    hypotheses={
        "$A$ positive semidefinite": "$A^½$, in the lemma",
        "$n > d$": "Section 3.2",
        "$k ≤ 2L$": "Lemma 4.3",
    },
    restates={"gatmiry2024.lemma-A.7": "Appendix A.1, Lemma A.7, (21)"},
    judge=judge_powers,
    **PRESETS,
)
def lemma_4_3(generator: torch.Generator, *, trials: int, searched: list[list[int]]) -> Rows:
    rows = measure_spectra(generator, trials, searched, shifted=True)
    for t in range(max(4, trials // 10)):
        pair, k = NonCommuting.draw(generator, t + 1), 2 + t % 2
        case = Case(d=len(pair.A), k=k, n=pair.n)
        rows.append({"case": case, "matrix": pair.shifted_moment(k), "basis": pair.inner()})
    return rows
