"""Lemmas 4.2 and A.5: moments of a sample covariance are near the powers of the covariance.

Printed    x̃ᵢ ~ N(0, Σ̃), Σ̃ = Σ λ_j u_j u_jᵀ, λ_1 ≥ … ≥ λ_d: for 1 ≤ k ≤ 2L the k-th moment of the
           sample covariance is Σ α_j u_j u_jᵀ and λ_j^k − δ^kλ_1^k ≤ α_j ≤ λ_j^k + δ^kλ_1^k
Reading    δ^k = 4kd/√n (see `moments`); with δ of section 3.5 the example below breaks it as well
Tested     exact moments, λ over two decades, all equal, and of the source's hard matrices, d ≤ 4,
           L ≤ 4, every k, n from d + 1 on; a search over λ at the least n of the correction
Wrong      a condition on n is missing, which Lemma A.2 has (n ≥ 4k²d²) and the proof takes from
           there: d = 1, n = 2, L = 2 has E[s⁴] = 24 (s is an exponential), the bound 1 + 16/√2
Corrected  n ≥ k²d, for the width 4kd/√n; Lemma A.2's n ≥ 4k²d² is more than that. With δ of section
           3.5 it is not enough: d = 1, n = 100, k = 10, L = 70, λ = 1 has α − 1 = 1.3346 and
           δ^k = 1.3331
Proof      by Isserlis' theorem α_j = Σ_p n^{C(G_p) − k} ∏_{c ≠ c*} tr(Σ̃^{|c|}) λ_j^{|c*|} over the
           pairings p. The one with C(G_p) = k gives λ_j^k; every term is positive and at most
           λ_1^k times its value at Σ̃ = I: λ_j^k ≤ α_j ≤ λ_j^k + λ_1^k(α − 1), α that of Lemma A.2,
           which is at most 1 + 4kd/√n for n ≥ k²d (lemma-A.2)
Beyond     the lower bound needs no δ; α_j − λ_j^k falls as 1/n, not as 1/√n
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum, Evidence, Part, misprint
from innerloop.claims.gatmiry2024.moments import (
    FALSIFIED,
    Rows,
    draw_spectra,
    judge_basis,
    judge_bounds,
    search_spectra,
)
from innerloop.claims.intervals import check_rate
from innerloop.claims.prompts import draw_covariance
from innerloop.claims.trials import Inequality
from innerloop.theory.looped import isotropic_moments
from innerloop.theory.wishart import Wishart

EXAMPLES = [100, 1000, 10_000, 100_000]


def judge_moments(rows: Rows) -> Evidence:
    low = Inequality("$λ_j^k ≤ α_j$ for every $n$", rounding=1e-9)
    for row in (row for row in rows if "found" in row):
        low.add(row["center"], row["found"], row["case"])
    fall = check_rate(
        "$α − λ^k$ falls as $1/n$ at $λ = 1$, $k = 4$, $d = 3$",
        EXAMPLES,
        [float(isotropic_moments(3, n, 4)[4] - 1) for n in EXAMPLES],
        -1.0,
        within=0.05,
        what="n",
        ours="a twentieth of a power",
    )
    basis = judge_basis(rows, "the k-th moment has the eigenvectors of the covariance")
    return Evidence(
        parts=[
            Part(printed=basis),
            judge_bounds(rows, "$|α_j − λ_j^k| ≤ {width} λ_1^k$"),
        ],
        errata=[_judge_third_line(rows), *SLIPS],
        beyond=[low.check(), fall],
    )


def _judge_third_line(rows: Rows) -> Erratum:
    """Check the proof's bound on the sum over pairings, which is that of the identity."""
    printed = Inequality("$α_j ≤ λ_j^k ∑_p n^{C(G_p) − k} d^{C(G'_p) − 1}$", rounding=1e-9)
    right = Inequality(
        "$α_j ≤ λ_j^k + λ_1^k (∑_p n^{C(G_p) − k} d^{C(G'_p) − 1} − 1)$", rounding=1e-9
    )
    for row in (row for row in rows if "found" in row):
        case = row["case"]
        d, n, k = (case[name] for name in ("d", "n", "k"))
        total = float(isotropic_moments(d, n, k)[k])
        printed.add(row["found"], total * row["center"], case)
        right.add(row["found"], row["center"] + (total - 1) * row["top"], case)
    where = "proof of Lemma A.5, the third line of the last display"
    return Erratum(where=where, printed=printed.check(), corrected=right.check())


SLIPS = [
    misprint(
        "Lemma A.5",
        "$|α_j − λ_j^k| ≤ δλ_1^k$, where Lemma 4.2 has $δ^k$, and no range of $k$",
        "$4kd/√n$, with which the proof ends",
        "$L = 1$, $k = 2$: $δ² = 8d/√n = 4kd/√n$ with $δ$ of section 3.5, and $δ$ is not",
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
    kind="inequality",
    hypotheses={"$n > d$": "Section 3.2", "$1 ≤ k ≤ 2L$": "Lemma 4.2"},
    restates={"gatmiry2024.lemma-A.5": "Appendix A.1, Lemma A.5"},
    quick={"trials": 120, "searched": [[1, 1], [2, 1], [2, 2], [3, 2]]},
    full={"trials": 3000, "searched": [[1, 1], [2, 1], [2, 2], [3, 2], [3, 3], [4, 3]]},
    tiny={"trials": 8, "searched": [[2, 1]]},
    judge=judge_moments,
    falsified=FALSIFIED,
)
def lemma_4_2(generator: torch.Generator, *, trials: int, searched: list[list[int]]) -> Rows:
    rows = search_spectra(searched, shifted=False)
    for spectrum in draw_spectra(generator, trials):
        rows += spectrum.list_rows(shifted=False)
    for t in range(trials):
        d, n, k = 2 + t % 3, 3 + t % 5, 2 + t % 5
        basis = draw_covariance(generator, d, 20.0)
        matrix = Wishart(basis / n, n).power(k)
        rows.append({"case": Case(d=d, n=n, k=k), "matrix": matrix, "basis": basis})
    return rows
