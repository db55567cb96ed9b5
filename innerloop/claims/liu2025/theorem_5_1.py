"""Theorem 5.1: K layers recover β* with an error of at most b_β e^(−α_n K).

Printed    for N_0 = 8(4S−2)²(log d + log S − log δ)/c and γ ≤ 3/2 there are parameters such that
           for any n in [N_0 : N], with probability 1 − δ, ‖β^(K+1)_{2n+1} − β*‖ ≤ b_β e^(−α_n K),
           e^(−α_n) = 1 − 2γ/3 + γ(2S−1)√((log d − log δ)/(nc)) + √((log S − log δ)/(nc))
           (the last term with γ in (D.3)). Proof: M = (2γ/σ_d²) I, θ from Lemma 1
Tested     bounded measurements at n ≥ N_0 with the c that theory/sparse.py proves; parameters that
           know n, S, d, δ and b_β, not X and β*; the proof's M on anisotropic x; its γ as the step;
           one set of parameters for all n. γ from 0.3 to 1.5, K to 12
Correction M = 2γΣ⁻¹; layers that step by at most 1/max D_iᵀX_i ≈ 1, whatever γ ≤ 3/2 α_n is taken
           at; parameters for n, or the rate α_{N_0} where one set serves all n ≥ N_0 with
           Lemma 1's thresholds
Beyond     n ≥ N_0 is never met at the paper's sizes: N_0 = 20,471 for d = 20, S = 3, δ = 0.1 and
           z = ±1, against N = 10. It leaves room for n < d only from d = 1,203 on (S = 1), 14,489
           (S = 2); below, plain gradient descent (θ = 0) meets the same bound
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.liu2025.measurements import (
    LAWS,
    add_violation_rate,
    draw_entries,
    draw_sparse_vectors,
    iterate,
    sigmas,
)
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

K, DELTA, GAMMAS = 12, 0.1, (0.3, 1.0, 1.5)
CASES = (("signs", 1.0, 1, 20), ("signs", 2.0, 1, 20), ("uniform", 1.0, 1, 8), ("signs", 1.0, 2, 8))


def draw_grams(generator: torch.Generator, law: str, n: int, d: int, draws: int) -> Tensor:
    """Draw ZᵀZ/(2n+1) for n rows of independent entries, in chunks."""
    found = torch.zeros(draws, d, d, dtype=torch.float64)
    for start in range(0, n, 4_096):
        z = draw_entries(generator, law, draws, min(4_096, n - start), d)
        found += z.mT @ z
    return found / (2 * n + 1)


def step_and_thresholds(
    n: int, at: int, S: int, d: int, c: float, gamma: float, b_beta: float = 1.0
) -> tuple[float, Tensor]:
    """Step size of the layers, and θ^(1), …, θ^(K), from Lemma 3's bounds at `at` examples."""
    a, b = sparse.deviation_width(S, DELTA, at, c), sparse.deviation_width(d, DELTA, at, c)
    step = min(gamma, (2 * n + 1) / (2 * n) / (1 + a))
    shrink = step * (2 * S - 1) * b + 1 - step * at / (at + 2) * (1 - a)
    return step, step * b * b_beta * shrink ** torch.arange(K, dtype=torch.float64)


@claim(
    "liu2025.theorem-5.1",
    "For n ≥ N_0 a K-layer transformer recovers β* with an error of at most b_β e^(−α_n K), with "
    "probability 1 − δ.",
    where="Section 5.1, Theorem 5.1",
    kind="rate",
    quick={"draws": 400, "far": 30},
    full={"draws": 2_000, "far": 300},
    tiny={"draws": 10, "far": 30},
    falsified={
        "1 − γ in place of 1 − 2γ/3 at γ = 3/2, and no width": {"slope": 1.0, "widths": 0.0},
        "the rate of n = 30 N_0 at N_0": {"common": False},
    },
)
def theorem_5_1(
    generator: torch.Generator,
    *,
    draws: int,
    far: int,
    slope: float = 2 / 3,
    widths: float = 1.0,
    common: bool = True,
) -> Evidence:
    exists = Inequality("some parameters for n: ‖β^(K+1) − β*‖ ≤ b_β e^(−α_n K), γ ≤ 3/2")
    least = Inequality("the same with M = (2/σ_d²) I and the step γ")
    inverse = Inequality("the same with M = 2Σ⁻¹ and the step min(γ, 1/max D_iᵀX_i)")
    table, rows, plain = [], [], 0.0
    for law, condition, S, d in CASES:
        c = sparse.coherence_constant(LAWS[law], condition)
        n = math.ceil(sparse.least_examples(S, d, DELTA, c))
        sigma, Z = sigmas(d, condition), draw_grams(generator, law, n, d, draws)
        star = draw_sparse_vectors(generator, draws, d, S)
        proper, last = 2 * Z * sigma / sigma[:, None], 0.0
        for gamma in GAMMAS:
            about = f"z {law}, σ₁/σ_d = {condition:g}, S = {S}, d = {d}, n = N_0 = {n}, γ = {gamma}"
            bound = _bound(n, S, d, c, gamma, slope, widths)
            step, thetas = step_and_thresholds(n, n, S, d, c, gamma)
            errors = (iterate(proper, star, step, thetas) - star).norm(dim=-1)
            last = float(errors[K].max())
            told = f"{about}, bound at K = {K} {float(bound[K]):.2g}"
            broken = (errors[1:] > bound[1:, None] + 1e-13).any(0)
            for found in (exists, inverse):
                add_violation_rate(found, broken, DELTA, (condition, S, d, gamma), told)
            raw = 2 * Z * sigma * sigma[:, None]
            wild = (iterate(raw, star, gamma, thetas) - star).norm(dim=-1)
            told = f"{told}, error there {float(wild[K].median()):.2g}"
            over = (wild[1:] > bound[1:, None] + 1e-13).any(0)
            add_violation_rate(least, over, DELTA, (condition, S, d, gamma), told)
            free = (iterate(proper, star, step, 0 * thetas) - star).norm(dim=-1)
            plain = max(plain, float((free[1:] > bound[1:, None] + 1e-13).any(0).double().mean()))
            if (law, condition, S) == ("signs", 1.0, 1):
                rows += _curves(gamma, bound, errors, free)
        table.append(
            {
                "law of z": law,
                "σ₁/σ_d": condition,
                "S": S,
                "d": d,
                "N_0": n,
                "largest error at K = 12, γ = 1.5": last,
            }
        )
    one, many = _one_for_all(generator, max(4, draws // 10), far, common)
    return Evidence(
        parts=[
            Part(printed=exists.check()),
            Part(printed=least.check(), corrected=inverse.check(), matters="result"),
            Part(printed=one.check(), corrected=many.check(), matters="result"),
        ],
        numbers={
            "N_0 at the paper's d = 20, S = 3 (δ = 0.1, z = ±1), where N = 10": math.ceil(
                sparse.least_examples(3, 20, DELTA, 0.25)
            ),
            **{
                f"least d that allows N_0 ≤ n < d, S = {S}": sparse.least_underdetermined(
                    S, DELTA, 0.25
                )
                for S in (1, 2, 3)
            },
            "share of draws in which θ = 0 misses the bound": plain,
        },
        table=table,
        figures=[_figure(rows)],
    )


def _bound(
    n: int, S: int, d: int, c: float, gamma: float, slope: float = 2 / 3, widths: float = 1.0
) -> Tensor:
    """The bound b_β e^(−α_n K) for K = 0, 1, …, b_β = 1."""
    full = sparse.rate_factor(n, S, d, DELTA, c, gamma, weight=1.0)
    factor = 1 - slope * gamma + widths * (full - 1 + 2 / 3 * gamma)
    return torch.tensor(max(factor, 0.0)).double() ** torch.arange(K + 1)


def _one_for_all(
    generator: torch.Generator, draws: int, far: int, common: bool
) -> tuple[Inequality, Inequality]:
    """Check thresholds made for n = N_0 at n = N_0 and at `far` times as many examples."""
    one = Inequality("one set of parameters, Lemma 1's at N_0, for all n: rate α_n")
    many = Inequality("the same, rate α_{N_0}")
    S, d, c, gamma = 1, 8, 0.25, 1.5
    start = math.ceil(sparse.least_examples(S, d, DELTA, c))
    slow, fast = _bound(start, S, d, c, gamma), _bound(far * start, S, d, c, gamma)
    for n in (start, far * start):
        step, thetas = step_and_thresholds(start, start, S, d, c, gamma)
        star = draw_sparse_vectors(generator, draws, d, S)
        G = 2 * draw_grams(generator, "signs", n, d, draws)
        errors = (iterate(G, star, step, thetas) - star).norm(dim=-1)
        for found, bound in (
            (one, slow if n == start else fast),
            (many, slow if common else fast),
        ):
            told = f"S = 1, d = {d}, γ = 3/2, n = {n}, N_0 = {start}, K = {K}"
            told += f": error {float(errors[K].max()):.2g}, bound {float(bound[K]):.2g}"
            add_violation_rate(found, errors[K] > bound[K], DELTA, (n,), told)
    return one, many


def _curves(gamma: float, bound: Tensor, errors: Tensor, free: Tensor) -> list[dict]:
    found = {
        "bound b_β e^(−α_n K)": bound,
        "LISTA-VM, largest error": errors.amax(-1),
        "θ = 0, largest error": free.amax(-1),
    }
    return [
        {"K": k, "error": max(float(values[k]), 1e-16), "what": name, "gamma": f"γ = {gamma}"}
        for name, values in found.items()
        for k in range(K + 1)
    ]


def _figure(rows: list[dict]) -> Figure:
    return Figure(
        title="Error after K layers at n = N_0, S = 1, d = 20",
        rows=rows,
        x=Axis(field="K", title="layers K"),
        y=Axis(field="error", title="‖β − β*‖ for ‖β*‖₁ = 1", scale="log"),
        colour=Axis(field="what", title="what", scale="category"),
        panel="gamma",
        caption="At n ≥ N_0 there are more examples than unknowns, and no threshold is needed.",
    )
