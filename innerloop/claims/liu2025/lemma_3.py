"""Lemma 3: D = X(M^V)ᵀ/(2N+1) is nearly incoherent with X.

Printed    there is an M^V (the proof: 2/σ_d² · I, σ_d the least deviation) such that with
           probability 1 − 3δ, a = √((log S − log δ)/(Nc)), b = √((log d − log δ)/(Nc)):
           min_{i∈𝕊} |D_iᵀX_i| ≥ N/(N+2) (1 − a),   max_{i∈𝕊} |D_iᵀX_i| ≤ N/(N+2) (1 + a),
           max_{i≠j} |D_iᵀX_i| ≤ b, with c a positive constant; covariance diag(σ₁², …, σ_d²)
Tested     M^V = 2Σ⁻¹ and D_iᵀX_j in the third, as Lemma 1 defines σ_max: three bounded laws,
           isotropic and σ₁/σ_d = 2 and 4, N from 50 to 2,000; c from Hoeffding's inequality
           (theory/sparse.py, proved there), one for all N, d, S and δ. Rows are independent, the
           entries of one need not be: the proof uses that z_i z_j is bounded and has mean 0. So
           rows ±√d e_i are drawn as well, i uniform, whose entries depend on each other
Wrong      the proof's M^V = 2/σ_d² I: D_1ᵀX_1 is near σ₁²/σ_d². Its step from one pair to all,
           d² exp(−Ncs²) = δ, needs log d² for log d; which only halves c. The upper bound takes
           2N/(2N+1) for N/(N+2), which is smaller; in the lemma, a outweighs this if 3δ < 1
Beyond     c = 1/(4a⁴κ²) works for |z| ≤ a and κ = σ₁/σ_d: c is no universal constant
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025.measurements import (
    LAWS,
    ONE_HOT,
    add_violation_rate,
    draw_entries,
    draw_rows,
    sigmas,
)
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

DELTAS, CONDITIONS = (0.3, 0.05), (1.0, 2.0, 4.0)
PAIRS = Case(N=100, d=30, δ=0.1)
"""Sizes at which many pairs are beyond the width of one."""


class Setting(NamedTuple):
    """Coherences of many draws: least and largest D_iᵀX_i on 𝕊, largest |D_iᵀX_j|."""

    case: Case
    c: float
    proper: list[Tensor]
    """For M^V = 2Σ⁻¹."""
    largest: Tensor
    """The largest D_iᵀX_i for M^V = 2/σ_d² I."""
    squares: Tensor
    """The largest mean of z_i² over the rows, i ∈ 𝕊: 1 + s of the proof."""


class Data(NamedTuple):
    settings: list[Setting]
    pairs: Tensor
    """The largest |D_iᵀX_j| at the sizes of PAIRS, z = ±1, draw by draw."""


def judge_coherence(data: Data) -> Evidence:
    joint = Inequality("the three inequalities at once, $M^V = 2Σ⁻¹$, with probability $1 − 3δ$")
    raw = Inequality("$max_{i∈𝕊} |D_iᵀX_i| ≤ N/(N+2) (1 + a)$ for $M^V = 2/σ_d² I$, $1 − δ$")
    upper = Inequality("$max_{i∈𝕊} |D_iᵀX_i| ≤ N/(N+2) (1 + a)$ for $M^V = 2Σ⁻¹$, $1 − δ$")
    line = "$max_{{i∈𝕊}} |D_iᵀX_i| ≤ {} max_{{i∈𝕊}} (1/N) ∑_j z_ji²$, $M^V = 2Σ⁻¹$"
    short, scaled = Inequality(line.format("N/(N+2)")), Inequality(line.format("2N/(2N+1)"))
    for each in data.settings:
        N, d, S = (each.case[name] for name in ("N", "d", "S"))
        for trial, factor in ((short, N / (N + 2)), (scaled, 2 * N / (2 * N + 1))):
            worst = (each.proper[1] / each.squares).argmax()
            square = float(each.squares[worst])
            working = ("", f"{format_entry(factor)} · {format_entry(square)}")
            trial.add(each.proper[1][worst], factor * square, each.case, working=working)
        for delta in DELTAS:
            a, b = (sparse.deviation_width(among, delta, N, each.c) for among in (S, d))
            low, high = N / (N + 2) * (1 - a), N / (N + 2) * (1 + a)
            least, most, off = each.proper
            case = each.case.extend(δ=delta)
            add_violation_rate(joint, (least < low) | (most > high) | (off > b), 3 * delta, case)
            add_violation_rate(upper, most > high, delta, case)
            note = f"largest entry in the mean {float(each.largest.mean()):.3g}, bound {high:.3g}"
            add_violation_rate(raw, each.largest > high, delta, case.extend(note=note))
    line = "$max_{{i≠j}} |D_iᵀX_j| ≤ √(({} − log δ)/(Nc))$, $c$ that of one pair, $1 − δ$"
    single, both = Inequality(line.format("log d")), Inequality(line.format("log d²"))
    N, d, delta, c = *PAIRS.values.values(), sparse.pair_constant()
    widths = [sparse.deviation_width(among, delta, N, c) for among in (d, d * d)]
    note = f"$z = ±1$, $c = 1/2$, $b = {widths[0]:.3g}$: {_describe_pair(N, widths[0])}"
    for trial, width in zip((single, both), widths, strict=True):
        add_violation_rate(trial, data.pairs > width, delta, PAIRS.extend(note=note))
    return Evidence(
        parts=[Part(printed=joint.check())],
        errata=[
            Part(printed=raw.check(), corrected=upper.check()).as_erratum(
                "proof, $M^V = 2/σ_d² I$"
            ),
            Part(printed=single.check(), corrected=both.check()).as_erratum(
                "proof, from $1 − d² exp(−Ncs²)$ to $s = √((log d − log δ)/(Nc))$"
            ),
            Part(printed=short.check(), corrected=scaled.check()).as_erratum(
                'proof, the upper bound, "similarly"'
            ),
            misprint(
                "Lemma 3 and (D.4), the third inequality",
                "$max_{i≠j} |D_iᵀX_i| ≤ b$",
                "$|D_iᵀX_j|$, as in Lemma 1's $σ_max$",
                (
                    "$z = ±1$, $M^V = 2I$: $D_iᵀX_i = 2N/(2N+1)$, which by (D.9) exceeds $b$ "
                    "for $N ≥ N_0$"
                ),
            ),
        ],
        numbers={
            "N_0 for d = 20, S = 3, δ = 0.1, z = ±1 (the paper runs N = 10)": math.ceil(
                sparse.least_examples(3, 20, 0.1, sparse.coherence_constant())
            )
        },
        table=[
            {
                "z": each.case.note,
                "N": each.case["N"],
                "mean of max D_iᵀX_i, M = 2/σ_d² I": float(each.largest.mean()),
                "mean of max D_iᵀX_i, M = 2Σ⁻¹": float(each.proper[1].mean()),
                "mean of max |D_iᵀX_j|, M = 2Σ⁻¹": float(each.proper[2].mean()),
            }
            for each in data.settings
        ],
    )


def _describe_pair(N: int, width: float) -> str:
    from scipy.stats import binom

    tail = 2 * float(binom.sf(math.floor(N * (1 + width) / 2), N, 0.5))
    return f"a given pair exceeds $b$ with probability {tail:.2g}, but there are 435 pairs"


def scale_coherence(*factors: float) -> Callable[[Data], Data]:
    """Make data in which least and largest diagonal and σ_max are others, by these factors."""
    return change_field(
        "settings.proper", lambda found: [by * x for by, x in zip(factors, found, strict=True)]
    )


@claim(
    "liu2025.lemma-3",
    "With $M$ of the order of the inverse covariance, $D = XMᵀ/(2N+1)$ satisfies three "
    "coherence inequalities with $X$, with high probability.",
    where="Appendix D.1, Lemma 3",
    kind="inequality",
    hypotheses={
        "$x$ bounded": "Assumption 1",
        "independent rows, covariance $diag(σ₁², …, σ_d²)$": "Section 4.1 and Appendix D.1",
        "$c$ is some constant": "Theorem 5.1; here that of Hoeffding's inequality",
    },
    quick={"draws": 300, "longest": 2_000, "pairs": 400},
    full={"draws": 5_000, "longest": 10_000, "pairs": 20_000},
    tiny={"draws": 40, "longest": 200, "pairs": 200},
    judge=judge_coherence,
    falsified={
        "least diagonals half as large": scale_coherence(0.5, 1, 1),
        "largest diagonals three times as large": scale_coherence(1, 3, 1),
        "entries off the diagonal ten times as large": scale_coherence(1, 1, 10),
        "pairs that are half as large again": change_field("pairs", lambda pairs: 1.5 * pairs),
    },
)
def lemma_3(generator: torch.Generator, *, draws: int, longest: int, pairs: int) -> Data:
    z = draw_entries(generator, "signs", pairs, PAIRS["N"], PAIRS["d"])
    most = sparse.coherence(2 * sparse.gram(z, torch.eye(PAIRS["d"]).double()), 1)[2]
    cells = [(law, N, by, 6, 2) for law in LAWS for N in (50, longest) for by in CONDITIONS]
    cells.append(("signs", 50, 2.0, 2, 1))
    cells += [(ONE_HOT, longest, by, d, S) for by in CONDITIONS for d, S in ((2, 1), (6, 2))]
    cells.append(("signs", 1, 1.0, 1, 1))  # by hand: 2/3 against 1/3
    return Data([_measure_setting(generator, draws, *cell) for cell in cells], most)


def _measure_setting(
    generator: torch.Generator, draws: int, law: str, N: int, condition: float, d: int, S: int
) -> Setting:
    bound = math.sqrt(d) if law == ONE_HOT else LAWS[law]
    sigma, c = sigmas(d, condition), sparse.coherence_constant(bound, condition)
    batch, eye = min(draws, 4_000_000 // (N * d)), torch.eye(d).double()
    grams, squares = [], []
    for _ in range(-(-draws // batch)):
        z = draw_rows(generator, law, batch, N, d)
        grams.append(sparse.gram(sigma * z, eye))
        squares.append(z[..., :S].square().mean(-2).amax(-1))
    G = 2 * torch.cat(grams)[:draws]  # σ_d = 1
    proper = list(sparse.coherence(G / sigma[:, None] ** 2, S))
    case = Case(N=N, d=d, S=S, note=f"$z$ {law}, $σ₁/σ_d = {condition:g}$")
    return Setting(case, c, proper, sparse.coherence(G, S)[1], torch.cat(squares)[:draws])
