"""Lemma 8: a random direction is seldom at right angles to a given one.

Printed    x uniform on the sphere, v a unit vector: for all δ < 1/(2d),
           P(|vᵀx| ≤ δ) ≤ √(δ/π) + exp(−Cδ^(−1/2)). Therefore
           P(∃ i ≤ k: x_iᵀv_i ≤ δ/√d) ≤ k√(δ/π) + k exp(−Cδ⁻¹), the event of Theorem 7 being
           x_iᵀv_i ≥ δ for all i. "Sampling from isotropic Gaussians" is said to do as well
Tested     the exact law, (vᵀx)² ~ Beta(1/2, (d−1)/2), d from 1 to 10⁶, δ from 10⁻³⁰⁰ to 1/(2d).
           k independent vectors: 1 − (1 − p)^k
Reading    |x_iᵀv_i| in the second as in the first, from which it follows: eigenvectors have no
           sign, and the proof of Theorem 7 asks for |p₁ᵀv₁| > δ
Wrong      the second as printed, without |·|: half of all directions are in the event, whatever δ
Corrected  P(∃ i: |x_iᵀv_i| ≤ δ/√d) ≤ k√(δ/π), and the first without its exponential term
Proof      vᵀx has the density c(1 − t²)^((d−3)/2), c = Γ(d/2)/(√π Γ((d − 1)/2)) ≤ √(d/2π), so that
           for d ≥ 3 P(|vᵀx| ≤ δ) ≤ 2δ√(d/2π) = √(2dδ) √(δ/π) ≤ √(δ/π) for δ ≤ 1/(2d); on the circle
           it is 2 asin(δ)/π; at d = 1 it is 0. Then sum over i ≤ k, δ/√d ≤ δ
Beyond     the event of Theorem 7 has probability below 2^(−k): signs have to be taken out of that
           theorem
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import draw_lines
from innerloop.claims.qliu2025.hard_instances import HARD_ANGLES
from innerloop.claims.trials import Expectation, Inequality

DIMENSIONS = (1, 2, 3, 4, 5, 8, 16, 64, 256, 1_024, 10**4, 10**6)
C = 1.0
"""The constant C > 0 is not given; whatever it is, its terms vanish as δ → 0."""


def probability_within(d: int, delta: float) -> float:
    """The exact probability P(|vᵀx| ≤ δ)."""
    from scipy.special import betainc

    if d == 1:
        return 1.0 if delta >= 1 else 0.0
    return float(betainc(0.5, (d - 1) / 2, min(delta, 1.0) ** 2))


Rows = list[dict[str, Any]]


def judge_probabilities(rows: Rows) -> Evidence:
    first = Inequality("$P(|vᵀx| ≤ δ) ≤ √(δ/π) + exp(−Cδ^(−1/2))$, $δ < 1/(2d)$")
    signed = Inequality("$P(∃ i: x_iᵀv_i ≤ δ/√d) ≤ k√(δ/π) + k exp(−C/δ)$")
    meant = Inequality("$P(∃ i: |x_iᵀv_i| ≤ δ/√d) ≤ k√(δ/π) + k exp(−C/δ)$")
    absolute = Inequality("$P(∃ i: |x_iᵀv_i| ≤ δ/√d) ≤ k√(δ/π)$")
    bare = Inequality("$P(|vᵀx| ≤ δ) ≤ √(δ/π)$, without the exponential term")
    for row in rows:
        if "p" not in row:
            continue
        d, delta, p, small = (row[name] for name in ("d", "δ", "p", "small"))
        root = math.sqrt(delta / math.pi)
        first.add(p, root + math.exp(-C / math.sqrt(delta)), Case(d=d, δ=delta))
        bare.add(p, root, Case(d=d, δ=delta))
        for k in (1, 2, 8):
            case = Case(d=d, k=k, note=f"$δ = {delta:.3g}$")
            some, more = -math.expm1(k * math.log1p(-small)), k * math.exp(-C / delta)
            right = f"{k} · √({delta:.3g}/π) + {k} · exp(−{C:g}/{delta:.3g})"
            some_signed = 1 - (0.5 * (1 - small)) ** k
            signed.add(some_signed, k * root + more, case, working=("", right))
            meant.add(some, k * root + more, case)
            absolute.add(some, k * root, case)
    shown = signed.check()
    example = (
        f"for every $C$, as $δ → 0$ the right side tends to 0, the left stays $≥ 1/2$; $C = {C:g}$"
    )
    if shown.counterexample:
        shown = replace(shown, counterexample=f"{example}, {shown.counterexample}")
    ratios = [
        {"d": row["d"], "ratio": row["p"] / math.sqrt(row["δ"] / math.pi)}
        for row in rows
        if row.get("d", 1) > 1
    ]
    largest = {row["d"]: row for row in sorted(ratios, key=lambda row: row["ratio"])}
    return Evidence(
        parts=[
            Part(printed=first.check()),
            Part(
                printed=meant.check(),
                reading="$|x_iᵀv_i|$, as in the first inequality and in the proof of Theorem 7",
            ),
        ],
        errata=[
            Part(printed=shown, corrected=absolute.check()).as_erratum(
                "Lemma 8, the second inequality, without $|·|$", "print"
            )
        ],
        beyond=[bare.check()],
        numbers={
            "largest P(|vᵀx| ≤ δ) in units of √(δ/π)": max(row["ratio"] for row in ratios),
            "standard errors between the exact law and samples, d = 5": rows[-1]["off"],
            "chance that 8 starts all have x_iᵀv_i > 0": 2.0**-8,
        },
        figures=[
            draw_lines(
                "How near Lemma 8 is to equality at δ = 1/(2d)",
                sorted(largest.values(), key=lambda row: row["d"]),
                "d: dimension d",
                "ratio: P(|vᵀx| ≤ δ) / √(δ/π)",
                log="x",
            )
        ],
    )


@claim(
    "qliu2025.lemma-8",
    "The inner product of a random unit vector with a fixed one is seldom small: $P(|vᵀx| ≤ δ)$ "
    "is at most $√(δ/π)$ and a little.",
    where="Lemma 8",
    kind="inequality",
    hypotheses={
        "$δ < 1/(2d)$": "the lemma",
        "$x_i$ independent": "uniform samples of the matrix $P$",
    },
    quick={"samples": 200_000, "deltas": 40},
    full={"samples": 5_000_000, "deltas": 400},
    tiny={"samples": 5_000, "deltas": 8},
    judge=judge_probabilities,
    falsified={
        "one direction in two is at right angles": lambda rows: [
            {**row, "p": 0.5, "small": 0.5} if "p" in row else row for row in rows
        ]
    },
)
def lemma_8(generator: torch.Generator, *, samples: int, deltas: int) -> Rows:
    steps = [(d, 0.4999 / d * 10 ** (-12 * k / deltas)) for d in DIMENSIONS for k in range(deltas)]
    rows: Rows = []
    hard = [(d, float(build(d))) for d in DIMENSIONS for build in HARD_ANGLES.values()]
    for d, delta in (*hard, *steps):
        p, small = (probability_within(d, x) for x in (delta, delta / math.sqrt(d)))
        rows.append({"d": d, "δ": delta, "p": p, "small": small})
    return [*rows, {"off": _compare_with_samples(generator, samples)}]


def _compare_with_samples(generator: torch.Generator, samples: int) -> float:
    """Compare the exact law with draws, in standard errors."""
    x = torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    inner = (x[:, 0] / x.norm(dim=-1)).abs()
    trial = Expectation("exact law")
    return trial.add((inner <= 0.1).double(), probability_within(5, 0.1), Case(d=5))
