"""Theorem E.1: the linear read-out, predicted from averages over all prefixes.

Printed    one more layer with score ⟨x_n, β_j⟩ − B' on odd tokens j and the MLP ŷ → (2/p)ŷ + B',
           p = P(⟨x_n, β_j⟩ ≥ B'); then for n ≥ N_0, with probability 1 − δ' − nδ,
           |y_n − ŷ_n| ≤ b_x(1 − 2γ/3)^K + c₄K/√n (1 − 2γ/3)^(K−1), with c₄ from η of (E.7), B', p
           and C_x. A token is heard if its score ⟨x_n, β_j⟩ reaches B' (o_j = 1).
           δ' = P(not E₁) + P(not E₂): E₁, no token j ≤ N_0 is heard; E₂, the number of tokens heard
           is pn − p/2 ± ε, ε = K√(np)(1 − 2γ/3)^K
Tested     the read-out as the proof has it, z = ±1, d = 4, S = 1, γ = 1, n = 2,000 ≥ N_0 for
           δ = 10⁻⁶, so that nδ = 0.002; five B', each with its own p and δ'; and γ = 0.05, K = 30
Vacuous    if B' ≤ 0, E₁ never holds: the first token has seen no label, so it has β = 0 at every
           layer and the score 0. If B' > 0, the β_j converge to one β*, all o_j agree from some j
           on, and the number heard is near 0 or n, not pn: δ' ≥ 1 at γ = 1 for every B' that 1 % of
           the scores reach, and the probability is not positive. Where E₂ admits that nothing is
           heard, K(1 − 2γ/3)^K is at least √p(n − 1/2)/√n, and c₄ makes the bound 2(|B'| + C_x
           b_x)(1 − 1/(2n)) or more, beyond what ŷ_n = B' is off: so it is where p is tiny, or γ
           small and K of order √n. At γ = 0.05 and K = 30 the probability is positive for some B',
           and the bound far above b_x b_β, which |y_n − 0| never exceeds
Wrong      (E.5), (a + x)^K ≤ a^K + ηK a^(K−1) s with x = 2γ(2S−1)s: at K = 1 it says x ≤ s.
           (a + x)^K ≤ a^K + Kx(a + x)^(K−1) holds for all a, x ≥ 0, by the mean value theorem.
           η > 0 asks for K − 1 < (1 − 2γ/3) 2√2(4S−2), so for K ≤ 2 at S = 1, γ = 1
Beyond     for p = 1 the bound fails (K = 8), early prefixes being heard; and |y_n − ŷ_n| is at most
           2b_x/(2n−1) Σ ‖β_j − β*‖ + (|B'| + |y_n|)/(2n−1), by the triangle inequality: there are n
           terms for 1/2 (2n−1). Early prefixes diverge (γ‖D_nᵀX_n‖ > 2), so the error grows with K
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.figures import draw_lines
from innerloop.claims.liu2025.readouts import (
    B_X,
    DELTA,
    N_0,
    D,
    Heard,
    S,
    measure_linear,
    measure_slow,
)
from innerloop.claims.trials import Inequality, Working


class Power(NamedTuple):
    """(a + x)^K, and what (E.5) and the mean value theorem bound it by."""

    left: float
    working: Working
    """How `left` and `printed` are computed."""
    printed: float | None
    """None where η of (E.7) is not positive, so that (E.5) says nothing."""
    proper: float
    case: Case


class Data(NamedTuple):
    heard: list[Heard]
    powers: list[Power]


def judge_linear(found: list[Heard]) -> Part:
    """Judge the bound of the linear read-out with the probability that is stated."""
    bound = "b_x(1−2γ/3)^K + c₄K/√n (1−2γ/3)^(K−1)"
    trial = Inequality(f"$|y_n − ŷ_n| ≤ {bound}$ with probability $1 − δ' − nδ$")
    for each in found:
        broken = (each.errors > each.bound).double().mean()
        trial.add(broken, each.missed + each.n * DELTA, _describe(each))
    likely = [each for each in found if each.missed + each.n * DELTA < 1]
    reason = (
        "if $B' ≤ 0$, $E₁$ never holds, because the score of the first token is 0. If $B' > 0$, "
        "nearly all scores of a draw reach $B'$ or nearly none do, instead of a share $p$, so that "
        "$E₂$ fails ($δ' ≥ 1$ at $γ = 1$, $n = 2000$, for each $B'$ that 1 % of the scores "
        "reach), unless $E₂$ is so wide that it allows none. Then the bound exceeds $b_x b_β$, the "
        "largest error of the prediction 0"
    )
    if likely:
        most, low = max(1 - each.missed for each in likely), min(each.bound for each in likely)
        reason += f" ($γ = {likely[0].gamma:g}$, $K = {likely[0].K}$: $1 − δ'$ up to {most:.2g}, "
        reason += f"the bound {low:.3g} or more for $b_x b_β = {B_X:g}$)"
    empty = all(each.gamma < 1 and each.bound > B_X for each in likely)
    check = replace(trial.check(), ours="only $B'$ with $p ≥ 0.01$ are tested")
    return Part(printed=check, vacuous=reason if empty else "")


def judge_powers(found: list[Power]) -> Erratum:
    printed = Inequality("(E.5): $(a + 2γ(2S−1)s)^K ≤ a^K + ηK a^(K−1) s$, $a = 1 − 2γ/3$")
    proper = Inequality("$(a + x)^K ≤ a^K + Kx(a + x)^(K−1)$, $x = 2γ(2S−1)s$")
    for each in found:
        if each.printed is not None:
            printed.add(each.left, each.printed, each.case, working=each.working)
        proper.add(each.left, each.proper, each.case)
    return Part(printed=printed.check(), corrected=proper.check()).as_erratum("proof, (E.5)")


def judge_read_out(data: Data) -> Evidence:
    all_heard = Inequality(
        "where all scores reach $B'$ ($p = 1$): $|y_n − ŷ_n|$ is within the printed bound"
    )
    proper = Inequality("$p = 1$: $|y_n − ŷ_n| ≤ 2b_x/(2n−1) ∑‖β_j − β*‖ + (|B'| + |y_n|)/(2n−1)$")
    rows = []
    for each in data.heard:
        if each.p < 1:
            continue
        all_heard.add(each.errors.mean(), each.bound, _describe(each))
        proper.add((each.errors - each.proper).max(), 1e-9, _describe(each))
        means = {"linear read-out": float(each.errors.mean()), "printed bound": each.bound}
        means["query read-out"] = float(each.query.mean())
        rows += [{"K": each.K, "error": max(v, 1e-16), "of": k} for k, v in means.items()]
    return Evidence(
        parts=[judge_linear(data.heard)],
        errata=[
            judge_powers(data.powers),
            misprint(
                "Theorem E.1 beside its proof",
                "$1 − nδ$ and $B'$ in $c₄$; in the proof $1 − 3nδ$, $|B'|$, and $r$ in $pn − r/2$",
                "$1 − 3nδ$ by (E.3), $|B'|$ by (E.1), and $p$, as in $E₂$",
                "$B' = −1$: $2B'/√p$ is negative, and (E.1) adds $|B'|$",
            ),
            misprint(
                "(E.1) and (E.2)",
                "$‖β* − 2/(2np − p) ∑ x_nᵀβ_j‖$, a number subtracted from a vector",
                "$∑ β_j$, as in the line after",
                "$d = 2$: $β*$ has two entries, $x_nᵀβ_j$ is one number",
            ),
            misprint(
                "the end of the proof",
                "$E₂(K√(np)(1 − 2γ/2)^K)$ in $δ'$, and (E.8) without $‖β*‖₁$",
                "$1 − 2γ/3$, and the factor $‖β*‖₁$ of the line before",
                "$γ = 1$: $1 − 2γ/2 = 0$, so that $E₂$ needs exactly $pn − p/2$ tokens",
            ),
        ],
        beyond=[all_heard.check(), proper.check()],
        numbers={
            "least δ' over all B' and K, γ = 1": min(
                each.missed for each in data.heard if each.gamma == 1
            ),
            "N_0": N_0,
        },
        figures=[
            draw_lines(
                f"Read-outs after K layers, z = ±1, d = {D}, S = {S}, γ = 1, n = 2,000",
                rows,
                "K: layers K",
                "error: mean of |y_n − ŷ_n|",
                by="of",
                log="y",
                caption="Early prefixes diverge with K, and the linear read-out averages over them "
                "(p = 1).",
            )
        ],
    )


def _describe(each: Heard) -> Case:
    told = f"$B' = {each.floor:.4g}$, $δ' = {each.missed:.3g}$, $nδ = {each.n * DELTA:.3g}$"
    return Case(K=each.K, n=each.n, p=each.p, γ=torch.tensor(each.gamma), note=told)


@claim(
    "liu2025.theorem-E.1",
    "Read out linearly, $K + 1$ layers predict $y_n$ with an error that falls like "
    "$(1 − 2γ/3)^K$, but for a term in $K/√n$, with probability $1 − δ' − nδ$.",
    where="Appendix E.1, Theorem E.1",
    kind="rate",
    hypotheses={
        "$‖x‖ ≤ b_x$, $‖β*‖₁ ≤ b_β$, no noise": "Assumption 1",
        "$B'$, $p$ and $δ'$ as the proof defines them": "the theorem refers to Appendix E.1",
    },
    quick={"draws": 40},
    full={"draws": 300},
    tiny={"draws": 4},
    judge=judge_read_out,
    falsified={
        "E₁ and E₂ hold in nine of ten draws": change_field("heard.missed", lambda _: 0.1),
        "powers larger by a hundredth": change_field("powers.left", lambda left: 1.01 * left),
    },
)
def theorem_e_1(generator: torch.Generator, *, draws: int) -> Data:
    heard = measure_linear(generator, draws, 2_000) + measure_slow(generator, draws, 2_000)
    return Data(heard, _list_powers())


def _list_powers() -> list[Power]:
    """List powers from i = N_0 on, γ = 1 first, then γ up to the ends of its range."""
    found, sizes = [], ((1, 2, 3), (1, 2, 3, 6, 12), (1, 4, 100))
    for gamma, sparsity, K, times in product((1.0, 1e-6, 0.3, 1.5), *sizes):
        a, most = 1 - 2 / 3 * gamma, 1 / (2 * math.sqrt(2) * (4 * sparsity - 2))
        s, away = most / math.sqrt(times), a - (K - 1) * most
        x, note = 2 * gamma * (2 * sparsity - 1) * s, f"$i = {times} N_0$"
        values = {"γ": torch.tensor(gamma), "s": torch.tensor(s)}
        eta = a / away if away > 0 else 0.0
        printed = a**K + eta * K * a ** (K - 1) * s if away > 0 else None
        proper = a**K + K * x * (a + x) ** (K - 1)
        working = (
            f"({a:.6g} + 2 · {gamma:g} · {2 * sparsity - 1} · {s:.6g})^{K}",
            f"{a:.6g}^{K} + {eta:.6g} · {K} · {a:.6g}^{K - 1} · {s:.6g}",
        )
        case = Case(K=K, S=sparsity, note=note, **values)
        found.append(Power((a + x) ** K, working, printed, proper, case))
    return found
