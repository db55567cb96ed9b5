"""Lemma 8: a random direction is seldom at right angles to a given one.

Printed    x uniform on the sphere, v a unit vector: for all δ < 1/(2d),
           P(|vᵀx| ≤ δ) ≤ √(δ/π) + exp(−Cδ^(−1/2)). Therefore
           P(∃ i ≤ k: x_iᵀv_i ≤ δ/√d) ≤ k√(δ/π) + k exp(−Cδ⁻¹), the event of Theorem 7 being
           x_iᵀv_i ≥ δ for all i. "Sampling from isotropic Gaussians" is said to do as well
Tested     the exact law, (vᵀx)² ~ Beta(1/2, (d−1)/2), d from 1 to 10⁶, δ from 10⁻¹² to 1/(2d).
           k independent vectors: 1 − (1 − p)^k
Correction |x_iᵀv_i| in the second: without it half of all directions are in the event, whatever δ
Beyond     the first holds without its exponential term, and is tight for large d. The event of
           Theorem 7 has probability below 2^(−k): signs have to be taken out of that theorem
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
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


def root(delta: float) -> float:
    return math.sqrt(delta / math.pi)


@claim(
    "qliu2025.lemma-8",
    "The inner product of a random unit vector with a fixed one is seldom small: P(|vᵀx| ≤ δ) is "
    "at most √(δ/π) and a little.",
    where="Lemma 8",
    kind="inequality",
    quick={"samples": 200_000, "deltas": 40},
    full={"samples": 5_000_000, "deltas": 400},
    tiny={"samples": 5_000, "deltas": 8},
    falsified={
        "√δ/π in place of √(δ/π)": {"bound": lambda delta: math.sqrt(delta) / math.pi},
        "δ/10 in place of √(δ/π)": {"bound": lambda delta: delta / 10},
    },
)
def lemma_8(
    generator: torch.Generator,
    *,
    samples: int,
    deltas: int,
    bound: Callable[[float], float] = root,
) -> Evidence:
    first = Inequality("P(|vᵀx| ≤ δ) ≤ √(δ/π) + exp(−Cδ^(−1/2)), δ < 1/(2d)")
    bare = Inequality("the same without the exponential term")
    signed = Inequality("P(∃ i: x_iᵀv_i ≤ δ/√d) ≤ k√(δ/π) + k exp(−C/δ)")
    absolute = Inequality("P(∃ i: |x_iᵀv_i| ≤ δ/√d) ≤ k√(δ/π)")
    rows, worst = [], 0.0
    for d in DIMENSIONS:
        for step in range(deltas):
            delta = 0.4999 / d * 10 ** (-12 * step / deltas)
            p, size, about = probability_within(d, delta), (d, step), f"d = {d}, δ = {delta:.3g}"
            first.add(p, bound(delta) + math.exp(-C / math.sqrt(delta)), size=size, about=about)
            ratio = p / root(delta)
            bare.add(p, bound(delta), size=size, about=about)
            if step == 0:
                rows.append({"d": d, "ratio": ratio})
            worst = max(worst, ratio)
            small = probability_within(d, delta / math.sqrt(d))
            for k in (1, 2, 8):
                told, size_k = f"{about}, k = {k}", (d, k, step)
                half = 1 - (0.5 * (1 - small)) ** k if d > 1 else 1 - 0.5**k
                most = k * bound(delta) + k * math.exp(-C / delta)
                signed.add(half, most, size=size_k, about=told)
                absolute.add(
                    -math.expm1(k * math.log1p(-small)), k * bound(delta), size=size_k, about=told
                )
    absolute.search_note = f"largest P(|vᵀx| ≤ δ)/√(δ/π) found: {worst:.4f}"
    return Evidence(
        parts=[
            Part(printed=first.check()),
            Part(printed=bare.check()),
            Part(printed=signed.check(), corrected=absolute.check()),
        ],
        numbers={
            "largest P(|vᵀx| ≤ δ) in units of √(δ/π), at δ = 1/(2d)": worst,
            "standard errors between the exact law and samples, d = 5": _compare_with_samples(
                generator, samples
            ),
            "chance that 8 starts all have x_iᵀv_i > 0": 2.0**-8,
        },
        figures=[
            Figure(
                title="How near Lemma 8 is to equality at δ = 1/(2d)",
                rows=[row for row in rows if row["d"] > 1],
                x=Axis(field="d", title="dimension d", scale="log"),
                y=Axis(field="ratio", title="P(|vᵀx| ≤ δ) / √(δ/π)"),
            )
        ],
    )


def _compare_with_samples(generator: torch.Generator, samples: int) -> float:
    """Compare the exact law with draws, in standard errors."""
    x = torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    inner = (x[:, 0] / x.norm(dim=-1)).abs()
    trial = Expectation("exact law")
    return trial.add((inner <= 0.1).double(), probability_within(5, 0.1), size=(5,), about="d = 5")
