"""Theorem E.1: the linear read-out, predicted from averages over all prefixes.

Printed    one more layer with score ⟨x_n, β_j⟩ − B' on odd tokens j and the MLP ŷ → (2/p)ŷ + B',
           p = P(⟨x_n, β_j⟩ ≥ B'); then for n ≥ N_0, with probability 1 − δ' − nδ,
           |y_n − ŷ_n| ≤ b_x(1 − 2γ/3)^K + c₄K/√n (1 − 2γ/3)^(K−1), with c₄ from η of (E.7), B', p
           and C_x. δ' = P(not E₁) + P(not E₂): E₁, no token j ≤ N_0 is heard (o_j = 0); E₂, the
           number of tokens heard is pn − p/2 ± ε, ε = K√(np)(1 − 2γ/3)^K
Tested     the read-out as the proof has it, n from N_0 on, z = ±1, d = 4, S = 1, γ = 1, for B'
           below all scores (p = 1); δ' as it is defined, over B'; (E.5) and (E.7) on their own
Correction |y_n − ŷ_n| ≤ b_x 2/(2n−1) Σ_m ‖β_{2m+1} − β*‖ + (|B'| + |y_n|)/(2n−1) for p = 1: the
           mean error of all prefixes, early ones among them. (a+x)^K ≤ a^K + Kx(a+x)^(K−1) for
           (E.5). η > 0 asks for K − 1 < (1 − 2γ/3) 2√2(4S−2), so for K ≤ 2 at S = 1, γ = 1
Beyond     δ' ≥ 1 for every B' that hears 1 % of the tokens, so nothing is stated: the β_j converge
           to one β*, all o_j agree from some j on, and their number is near 0 or n, not pn; with
           p = 1, E₁ fails. (Where next to nothing is heard, E₂ asks for √(np) ≤ K(1 − 2γ/3)^K, and
           the bound is then beyond 2|B'|/(1 − 2γ/3).) Early prefixes diverge (γ‖D_nᵀX_n‖ > 2), so
           the error grows with K where the bound falls
Note       (E.8) drops ‖β*‖₁, and the definition of δ' has 1 − 2γ/2 for 1 − 2γ/3
"""

from __future__ import annotations

import math

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.liu2025.readouts import DELTA, C, D, Prefixes, S, simulate_prefixes
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

LAYERS, GAMMA, B_X = (1, 2, 4, 8, 12), 1.0, math.sqrt(D)
A = 1 - 2 / 3 * GAMMA


@claim(
    "liu2025.theorem-E.1",
    "Read out linearly, K + 1 layers predict y_n with an error that falls like (1 − 2γ/3)^K, but "
    "for a term in K/√n.",
    where="Appendix E.1, Theorem E.1",
    kind="rate",
    quick={"draws": 30, "times": 10},
    full={"draws": 300, "times": 50},
    tiny={"draws": 4, "times": 2},
    falsified={
        "the mean over prefixes, halved": {"half": 0.5},
        "(E.5) corrected without the factor K": {"power": 0},
        "η > 0 as long as K ≤ 3": {"more": 1},
    },
)
def theorem_e_1(
    generator: torch.Generator,
    *,
    draws: int,
    times: int,
    half: float = 1.0,
    power: int = 1,
    more: int = 0,
) -> Evidence:
    start = math.ceil(sparse.least_examples(S, D, DELTA, C))
    found = simulate_prefixes(generator, draws, times * start, max(LAYERS), GAMMA, start)
    printed = Inequality("|y_n − ŷ_n| ≤ b_x(1−2γ/3)^K + c₄K/√n (1−2γ/3)^(K−1)")
    proper = Inequality("|y_n − ŷ_n| ≤ b_x 2/(2n−1) Σ‖β_j − β*‖ + (|B'| + |y_n|)/(2n−1), p = 1")
    says = Inequality("δ' < 1 for some B' with p ≥ 0.01, without which nothing is stated")
    rows, least = [], math.inf
    for m in (start, times * start):
        for K in LAYERS:
            rows.append(_compare_readout(found, m, K, printed, proper, half))
            least = min(least, _vacuous(found, m, K, start, says))
    expansion, better = _expansions(power)
    positive, limited = _eta(more)
    return Evidence(
        parts=[
            Part(printed=printed.check(), corrected=proper.check(), matters="result"),
            Part(printed=says.check(), matters="result"),
            Part(printed=expansion.check(), corrected=better.check()),
            Part(printed=positive.check(), corrected=limited.check()),
        ],
        numbers={
            "least δ' found over all B', K and n": least,
            "largest ‖β‖ of an early prefix at K = 12": float(found.beta[-1].norm(dim=-1).max()),
            "N_0": start,
        },
        table=rows,
        figures=[_figure(rows)],
    )


def _compare_readout(
    found: Prefixes, m: int, K: int, printed: Inequality, proper: Inequality, half: float
) -> dict:
    """Compare the read-out over all prefixes at token 2m+1, n = m + 1."""
    n, y = m + 1, found.labels[:, m]
    floor = float(found.scores(K, m).min()) - 1.0
    errors = (found.linear_readout(K, m, floor) - y).abs()
    away = (found.beta[K][:, :n] - found.star.unsqueeze(1)).norm(dim=-1)
    mean = 2 / (2 * n - 1) * away.sum(-1)
    c4 = _c4(n, K, abs(floor))
    bound = B_X * A**K + c4 * K / math.sqrt(n) * A ** (K - 1)
    for k, error in enumerate(errors.tolist()):
        about = f"n = {n}, K = {K}, B' = {floor:.3g}, c₄ = {c4:.3g} (with |η|)"
        printed.add(error, bound, size=(K, n, k), about=about)
        rest = (abs(floor) + abs(float(y[k]))) / (2 * n - 1)
        proper.add(error, half * (B_X * float(mean[k]) + rest), size=(K, n, k), about=about)
    return {
        "n": n,
        "K": K,
        "linear read-out, mean error": float(errors.mean()),
        "query read-out, mean error": float((found.query_readout(K)[:, m] - y).abs().mean()),
        "printed bound": bound,
    }


def _c4(n: int, K: int, floor: float) -> float:
    """c₄ for p = 1, |η| where η is negative, and C_x for XᵀX = n I."""
    L = (math.log(D) + math.log(S) - math.log(DELTA)) / C
    C_x = D * B_X * (n + 1) / n
    return 2 * math.sqrt(2) * B_X * abs(_eta_of(K)) * math.sqrt(L) + 2 * floor + 2 * C_x * B_X


def _eta_of(K: int) -> float:
    """The value of (E.7): √(L/N_0) is 1/(2√2(4S−2))."""
    return A / (A - (K - 1) / (2 * math.sqrt(2) * (4 * S - 2)))


def _vacuous(found: Prefixes, m: int, K: int, start: int, says: Inequality) -> float:
    """The least δ' over a range of B', each with its own p."""
    scores, n, least, told = found.scores(K, m), m + 1, math.inf, ""
    for floor in (float(scores.min()) - 1, -1.5, -0.9, -0.5, 0.0, 0.5, 0.9, 1.1, 2.0):
        heard = scores >= floor
        p = float(heard.double().mean())
        if p < 0.01:
            continue
        early = heard[:, :start].any(-1)
        epsilon = K * math.sqrt(n * p) * A**K
        off = (heard.sum(-1) - (p * n - p / 2)).abs() > epsilon
        missed = float(early.double().mean() + off.double().mean())
        if missed < least:
            least, told = missed, f"n = {n}, K = {K}, B' = {floor:.3g}, p = {p:.3g}"
    says.add(least, 1 - 1e-9, size=(K, n), about=f"{told}, the least δ' of nine B'")
    return least


def _expansions(power: int) -> tuple[Inequality, Inequality]:
    printed = Inequality("(E.5): (a + 2γ(2S−1)s)^K ≤ a^K + ηK a^(K−1) s, a = 1 − 2γ/3")
    proper = Inequality("(a + x)^K ≤ a^K + Kx(a + x)^(K−1), x = 2γ(2S−1)s")
    for sparsity in (1, 2, 3):
        for K in (1, 2, 3, 6, 12):
            for times in (1, 4, 100):
                s = 1 / (2 * math.sqrt(2) * (4 * sparsity - 2)) / math.sqrt(times)
                x = 2 * GAMMA * (2 * sparsity - 1) * s
                away = A - (K - 1) / (2 * math.sqrt(2) * (4 * sparsity - 2))
                left, size = (A + x) ** K, (K, sparsity, times)
                about = f"γ = 1, S = {sparsity}, K = {K}, i = {times} N_0"
                right = A**K + A / away * K * A ** (K - 1) * s
                printed.add(left, right, size=size, about=about)
                proper.add(left, A**K + K**power * x * (A + x) ** (K - 1), size=size, about=about)
    return printed, proper


def _eta(more: int) -> tuple[Inequality, Inequality]:
    printed = Inequality("η of (E.7) is positive for every K")
    proper = Inequality("η > 0 for K − 1 < (1 − 2γ/3) 2√2(4S−2)")
    for K in range(1, 13):
        eta = _eta_of(K)
        about = f"γ = 1, S = 1, K = {K}, −η"
        printed.add(-eta, 0.0, size=(K,), about=about)
        if K - 1 - more < A * 2 * math.sqrt(2) * (4 * S - 2):
            proper.add(-eta, 0.0, size=(K,), about=about)
    return printed, proper


def _figure(rows: list[dict]) -> Figure:
    shown = [
        {"K": row["K"], "error": row[name], "what": name, "n": f"n = {row['n']}"}
        for row in rows
        for name in list(row)[2:]
    ]
    return Figure(
        title="Linear and query read-out after K layers, z = ±1, d = 4, S = 1, γ = 1",
        rows=shown,
        x=Axis(field="K", title="layers K"),
        y=Axis(field="error", title="|y_n − ŷ_n|", scale="log"),
        colour=Axis(field="what", title="what", scale="category"),
        panel="n",
        caption="Early prefixes diverge with K, and the linear read-out averages over them.",
    )
