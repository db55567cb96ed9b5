"""Lemma A.2: moments of the sample covariance of standard normals.

Printed    n ≥ 4k²d², x ~ N(0, I), Σ = (1/n) Σ xᵢxᵢᵀ: E[Σ^k] = αI with 1 ≤ α ≤ 1 + 4kd/√n (the
           power k is missing in print; the proof has it)
Tested     exact moments in fractions, k ≤ 12, d ≤ 50, n = 4k²d² and more
Errata     two misprints; 2m ends have (2m − 1)!! pairings; the geometric sum at the end is
           bounded as printed from n ≥ 16k²d² on: q = 2kd/√n ≤ 1/2 gives 1/(1 − q) ≤ 1 + 2q. At
           n = 4k²d² it is k + 1, and the bound 3
Beyond     α ≤ ∏_{i<k} (1 + 2id/n) ≤ exp(k(k − 1)d/n) for every n: in the proof's sum over pairings,
           n^kα = Σ_p n^{C(G_p)} d^{C(G'_p) − 1}, x(x + 2)…(x + 2k − 2) counts those with
           C(G_p) = j as the coefficient of x^j, and C(G_p) + C(G'_p) ≤ k + 1 as the proof says (by
           Euler's formula for the surface that p and the two fixed pairings bound).
           For n ≥ k²d this is at most 1 + 4kd/√n: e^x − 1 ≤ 2x for x ≤ 1, and k ≤ √n. So the lemma
           holds from there on, and α − 1 is of order 1/n, not 1/√n
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.trials import Equality, Inequality, as_erratum
from innerloop.theory.looped import isotropic_moments

Rows = list[dict[str, Any]]
"""A case, and one of: the excess α − 1 of a moment, a number of pairings, a geometric sum."""


def judge_moments(rows: Rows) -> Evidence:
    low = Inequality("$1 ≤ α$ with $E[Σ^k] = αI$")
    high = Inequality("$α ≤ 1 + 4kd/√n$ with $E[Σ^k] = αI$, $n ≥ 4k²d²$")
    sharp = Inequality("$α ≤ ∏_{i<k} (1 + 2id/n)$ with $E[Σ^k] = αI$, every $n$")
    largest = 0.0
    for row in (row for row in rows if "excess" in row):
        case, excess = row["case"], row["excess"]
        k, d, n = (case[name] for name in ("k", "d", "n"))
        bound = prod(1 + Fraction(2 * i * d, n) for i in range(k)) - 1
        sharp.add(excess, float(bound), case)
        if n >= 4 * k * k * d * d:
            low.add(1.0, 1.0 + excess, case)
            high.add(excess, 4 * k * d / n**0.5, case)
            largest = max(largest, excess)
    return Evidence(
        parts=[Part(printed=low.check()), Part(printed=high.check())],
        errata=[*SLIPS, _judge_pairings(rows), _judge_sums(rows)],
        beyond=[sharp.check()],
        numbers={"largest α − 1 at n = 4k²d²": largest, "4kd/√n there": 2.0},
    )


SLIPS = [
    misprint(
        "Lemma A.2",
        "$E[(1/n) ∑ xᵢxᵢᵀ] = α_{n,k,d} I$",
        "$E[((1/n) ∑ xᵢxᵢᵀ)^k]$, as in (15)",
        "without the power $α$ is 1 for every $k$",
    ),
    misprint(
        "proof of Lemma A.2, (18) and (19)",
        "indices run to $n$, and (19) is $n^{C(G'_p)} I$",
        "they run to $d$, and (19) is $d^{C(G'_p) − 1} I$, as in the display after it",
        "$k = 1$: $E[x xᵀ] = I$, and $n^{C(G')} I = nI$",
    ),
]


def _judge_pairings(rows: Rows) -> Erratum:
    """Check the number of pairings, which is E[x^{2m}] of a standard normal."""
    even = Equality("$2m$ ends have $(2m)!!$ pairings")
    odd = Equality("$2m$ ends have $(2m − 1)$!! pairings")
    for row in (row for row in rows if "pairings" in row):
        m = row["case"]["m"]
        even.add(row["pairings"], prod(range(2 * m, 0, -2)), row["case"])
        odd.add(row["pairings"], prod(range(2 * m - 1, 0, -2)), row["case"])
    return as_erratum("proof of Lemma A.2, before (20)", even, odd)


def _judge_sums(rows: Rows) -> Erratum:
    """Check the last step of the proof, a geometric sum."""
    trials = {
        least: Inequality(f"$∑_{{s≤k}} (2kd/√n)^s ≤ 1 + 4kd/√n$ for $n ≥ {least}k²d²$")
        for least in (4, 16)
    }
    for row in (row for row in rows if "sum" in row):
        k, ratio = row["case"]["k"], row["ratio"]
        terms = " + ".join(f"{ratio**s:.4g}" for s in range(k + 1))
        working = (terms, f"1 + 2 · {ratio:.4g}")
        trials[row["least"]].add(row["sum"], 1 + 2 * ratio, row["case"], working=working)
    return as_erratum("proof of Lemma A.2, after (20)", *trials.values())


@claim(
    "gatmiry2024.lemma-A.2",
    "For $n ≥ 4k²d²$ the k-th moment of the sample covariance of standard normals is $αI$ "
    "with $1 ≤ α ≤ 1 + 4kd/√n$.",
    where="Appendix A.1, Lemma A.2 and its proof, (14) to (20)",
    kind="inequality",
    hypotheses={"$n ≥ 4k²d²$": "the lemma", "the power $k$": "the proof, (15)"},
    quick={"most": 12},
    full={"most": 24},
    tiny={"most": 6},
    judge=judge_moments,
    falsified={
        "α − 1 as large as 5kd/√n": lambda rows: [
            {**row, "excess": 5 * row["case"]["k"] * row["case"]["d"] / row["case"]["n"] ** 0.5}
            if "excess" in row
            else row
            for row in rows
        ],
        "α below 1 by a thousandth": change_column("excess", lambda excess: -0.001),
        "one pairing overlooked": change_column("pairings", lambda count: count - 1),
        "sums that a larger n leaves at k + 1": lambda rows: [
            {**row, "sum": row["case"]["k"] + 1.0} if "sum" in row else row for row in rows
        ],
    },
)
def lemma_a_2(generator: torch.Generator, *, most: int) -> Rows:
    rows: Rows = []
    for k in range(1, most + 1):
        for d in (1, 2, 3, 10, 50):
            for n in (1, d + 1, k * k * d, *(4 * k * k * d * d * times for times in (1, 3, 1000))):
                excess = float(isotropic_moments(d, n, k)[k] - 1)
                rows.append({"case": Case(k=k, d=d, n=n), "excess": excess})
        for least in (4, 16):
            for times in (1, 2, 10):
                n = least * times * k * k
                q = 2 * k / n**0.5
                row = {"least": least, "ratio": q, "sum": sum(q**s for s in range(k + 1))}
                rows.append({"case": Case(k=k, d=1, n=n), **row})
    for m in range(1, most + 1):
        rows.append({"case": Case(m=m), "pairings": int(isotropic_moments(1, 1, m)[m])})
    return rows
