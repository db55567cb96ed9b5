"""Lemma A.10: the bound on the gradient behind gradient dominance.

Printed    8δd^{3/(4L)} ≤ ε ≤ 1 and 4dδ^{4L−2} ≤ 1: L(A, 0) ≥ ε^{2L} + dδ^{2L}(ε + 2)^{2L} implies
           ‖∇L(A, 0)‖² ≥ ¼ε^{4L−2}
Tested     symmetric A, both forms of L(A, 0), as in theorem-3.4, at the smallest n that the
           conditions allow (64·8^{4L}L²d⁵: 262 144 at L = d = 1) and far above it, ε from its least
           value to 1, from the level out, and a search; multiples of the identity in fractions
Wrong      the proof's last line has d^{−(L−1)/(2L−1)}, which the statement leaves out. As n grows
           A = aI has the loss d(1 − a)^{2L} and ‖∇L‖² = 4L²d(1 − a)^{4L−2}: at d = 10⁴, L = 2,
           a = 0.899 and ε = 1 they are 1.04 and 0.17. It can fail from 16L² < d^{(L−1)/L} on
Errata     the step after (27) compares the noise with |λ_1 − 1|, λ_1 the largest eigenvalue, where
           m = max |λ_i − 1| is meant. With m it holds: m ≥ ε/d^{1/(2L)}, hence (λ_1 + 1)/m ≤
           1 + 2d^{1/(2L)}/ε ≤ 3d^{1/(2L)}/ε, whose (4L − 2)-th power is at most
           (3/8)^{4L}/(dδ^{4L}) ≤ 1/(4dδ^{4L}) for ε ≥ 8δd^{3/(4L)}
Corrected  A symmetric: ‖∇L‖² ≥ ¼d^{−(L−1)/L}ε^{4L−2}
Proof      the conditions give √n ≥ 8·64^L·Ld^{5/2} ≥ 128Ld² and ε^{2L} ≥ 64^L·8Ld/√n, above the
           threshold of theorem-3.4, whose proof has (4/9)L²(4/9)^{1/L} ≥ ¼ in place of 1/16 for
           L ≥ 2. For one loop ‖∇L‖² = 4κ(L(A, 0) − d(κ − 1)/κ), κ = 1 + (d + 1)/n, by completing
           the square, which is at least 4ε²
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.gatmiry2024 import landscape
from innerloop.claims.gatmiry2024.landscape import (
    FORMS,
    LOSS,
    TRACE,
    delta,
    get_law,
    hoelder_factor,
)
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Inequality, as_erratum
from innerloop.theory.looped import isotropic_loss

SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [2, 3]]
Rows = list[dict[str, Any]]
"""The case with ε, which of the two functions, whether A is symmetric and has a root A^½, and
‖∇L‖²; or the sums of the proof's Hölder inequality; or eigenvalues: λ_1 + 1, |λ_1 − 1| and
max |λ_i − 1|."""


def least_examples(d: int, L: int) -> int:
    """The smallest n for which some ε ≤ 1 is allowed: 8δd^{3/(4L)} ≤ 1 and 4dδ^{4L−2} ≤ 1."""
    small = min(d ** (-3 / (4 * L)) / 8, (4 * d) ** (-1 / (4 * L - 2)))
    return int((8 * L * d / small ** (2 * L)) ** 2 * 1.001) + 1


def level(epsilon: float, d: int, n: int, L: int) -> float:
    return epsilon ** (2 * L) + d * (delta(L, d, n) * (epsilon + 2)) ** (2 * L)


def judge_gradients(rows: Rows) -> Evidence:
    printed = {
        form: Inequality(f"$‖∇L‖² ≥ ε^{{4L−2}}/4$, $L(A, 0)$ {form}", larger_first=True)
        for form in FORMS
    }
    bound = "$‖∇L‖² ≥ d^{−(L−1)/L} ε^{4L−2}/4$"
    corrected, skew = (
        Inequality(f"$A$ {which}: {bound}", larger_first=True)
        for which in ("symmetric", "any matrix")
    )
    norms = Inequality(
        "$∑|z|^{4L−2} ≥ d^{−(L−1)/(2L−1)} (∑|z|^{2L})^{(2L−1)/L}$", larger_first=True
    )
    mended = Inequality("$∑|z|^{4L−2} ≥ d^{−(L−1)/L} (∑|z|^{2L})^{(2L−1)/L}$", larger_first=True)
    noise = "dδ^{4L}(λ_1 + 1)^{4L−2}"
    first = Inequality(f"${noise} ≤ |λ_1 − 1|^{{4L−2}}/4$, $λ_1$ the largest eigenvalue")
    farthest = Inequality(f"${noise} ≤ max_i |λ_i − 1|^{{4L−2}}/4$")
    for row in rows:
        case = row["case"]
        d, L = case["d"], case["L"]
        if "top" in row:
            power, width = 4 * L - 2, delta(L, d, case["n"]) ** (4 * L)
            left = d * width * row["top"] ** power
            working = (
                f"{d} · {width:.6g} · {row['top']:.6g}^{power}",
                f"{row['first']:.6g}^{power}/4",
            )
            first.add(left, row["first"] ** power / 4, case, working=working)
            farthest.add(left, row["far"] ** power / 4, case)
            continue
        if "high" in row:
            low = row["low"] ** ((2 * L - 1) / L)
            factor = d ** (-(L - 1) / (2 * L - 1))
            working = (f"{factor:.6g} · {low:.6g}", "")
            norms.add(factor * low, row["high"], case, working=working)
            mended.add(hoelder_factor(d, L) * low, row["high"], case)
            continue
        least, slope = case["ε"] ** (4 * L - 2) / 4, row["slope"]
        if row["root"]:
            printed[row["form"]].add(least, slope, case)
        if row["symmetric"] and row["form"] == LOSS:
            corrected.add(hoelder_factor(d, L) * least, slope, case)
            corrected.search_note = row["search"]
        elif row["form"] == LOSS:
            skew.add(hoelder_factor(d, L) * least, slope, case)
    part = Part(
        printed=printed[LOSS].check(),
        corrected=corrected.check(),
        reading="$L(A, 0)$ is the loss, as Section 3.5 defines it",
        other_readings={TRACE: printed[TRACE].check()},
    )
    numbers = {
        f"largest $d$ for which all equal $λ$ satisfy it, $L = {L}$": int(
            (16 * L * L) ** (L / (L - 1))
        )
        for L in (2, 3, 4, 5)
    }
    return Evidence(
        parts=[part],
        errata=[
            as_erratum("proof of Lemma A.10, Hölder's inequality", norms, mended),
            as_erratum("proof of Lemma A.10, after (27)", first, farthest),
            *SLIPS,
        ],
        beyond=[skew.check()],
        numbers=numbers,
    )


SLIPS = [
    misprint(
        "before Lemma A.10, (26)",
        "the binomials are $C(2L−1−i, ℓ_1) C(i, ℓ_2)$, for $ℓ_1 ≤ i$ and $ℓ_2 ≤ 2L−1−i$",
        "$C(i, ℓ_1) C(2L−1−i, ℓ_2)$",
        "$L = d = A = 1$, $i = 0$: $E[Σ(1 − Σ)] = −2/n$ on the left, the printed sum is $E[Σ] = 1$",
    ),
    misprint(
        "before Lemma A.10, the displays after (26)",
        "$E[(I − ΣA)^iΣ(I − ΣA)^{2L−1−i}]$ is within $δ^{2L}(λ + 1)^{2L−1}$ of $(λ_j − 1)^{2L−1}$",
        "of $(1 − λ_j)^{2L−1}$, to which the line before adds up; the gradient has it with a minus",
        "$d = L = 1$, $A = 0$, $n = 10⁴$: 1 on the left, at most $−1 + δ² = −0.92$ on the right",
    ),
    misprint(
        "proof of Lemma A.10, after (27)",
        "$∑_{i=1}^{2L} (λ_i − 1)^{2L}$",
        "the sum runs to $d$",
        "there are $d$ eigenvalues",
    ),
]


@claim(
    "gatmiry2024.lemma-A.10",
    "Above the loss $ε^{2L} + dδ^{2L}(ε + 2)^{2L}$ the squared gradient is at least $ε^{4L−2}/4$.",
    where="Appendix A.1, Lemma A.10",
    kind="inequality",
    hypotheses={
        "$A$ symmetric, with $A^½$": "Lemma 4.3, with which the proof begins, takes $A^½$",
        "$Σ* = I$": "Theorem 3.4, whose proof this is",
        "$8δd^{3/(4L)} ≤ ε ≤ 1$ and $4dδ^{4L−2} ≤ 1$": "the lemma",
    },
    quick={"sizes": SIZES, "extra": 6, "descents": 3},
    full={"sizes": [*SIZES, [3, 2]], "extra": 60, "descents": 8},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 1, "descents": 0},
    judge=judge_gradients,
    falsified={
        "gradients a hundredth as long": change_column("slope", lambda slope: slope / 1e4),
        "sums of 2L-th powers ten times as large": change_column("low", lambda low: 10 * low),
        "no eigenvalue apart from 1": change_column("far", lambda far: 0.0),
    },
)
def lemma_a_10(
    generator: torch.Generator, *, sizes: list[list[int]], extra: int, descents: int
) -> Rows:
    rows = measure_multiples() + measure_norms(generator) + measure_noise(generator, sizes)
    for case in (case for d, L in sizes for case in list_cases(d, L)):
        for form in FORMS:
            for times in (1.0, 100.0):
                most = level(case["ε"], case["d"], case["n"], case["L"]) * times
                rows += landscape.measure_at_level(generator, case, form, most, extra)
    allowed = [case.values for d, L in sizes for case in list_cases(d, L)][::5]
    powers = [(d, L, 10 ** len(str(least_examples(d, L)))) for d, L in sizes if L > 1]
    round_sizes = [{"d": d, "L": L, "n": n, "ε": 1.0} for d, L, n in powers]
    for symmetric, tried in ((True, allowed), (False, round_sizes)):
        rows.append(
            landscape.search_gradient(
                generator, corrected_margin, tried, descents, symmetric=symmetric
            )
        )
    return rows


def list_cases(d: int, L: int) -> list[Case]:
    """List n and ε at the ends of what the lemma allows, and between."""
    cases = []
    for n in (least_examples(d, L), 10**4 * least_examples(d, L)):
        low = 8 * delta(L, d, n) * d ** (3 / (4 * L))
        cases += [Case(d=d, L=L, n=n, ε=epsilon) for epsilon in (low, (low + 1) / 2, 1.0)]
    return cases


def corrected_margin(A: Tensor, **size: Any) -> tuple[Tensor, Tensor]:
    """log of ‖∇L‖² over the corrected bound, and of the loss over the level."""
    d, L, n, epsilon = (size[name] for name in ("d", "L", "n", "ε"))
    value, slope = landscape.loss_and_squared_gradient(get_law(d, n, L), A)
    bound = hoelder_factor(d, L) * epsilon ** (4 * L - 2) / 4
    return (slope / bound).log(), (value / level(epsilon, d, n, L)).log()


def measure_multiples() -> Rows:
    """Measure A = aI near the level of ε = 1, for many features, in fractions."""
    rows = []
    tried = ((10**4, 2, "0.899"), (10**6, 2, "0.96"), (10**5, 4, "0.75"), (30, 2, "0"))
    for d, L, a in ((4_100, 3, "0.75"), *tried):
        n = 10**60
        value = isotropic_loss(d, n, L, Fraction(a))
        slope = float(isotropic_loss(d, n, L, Fraction(a), 1) ** 2 / d)
        if n < least_examples(d, L) or float(value) < level(1.0, d, n, L):
            raise ValueError(f"the lemma's conditions do not hold at d = {d}, L = {L}")
        case = Case(d=d, L=L, n=n, ε=1.0, note=f"$A = {a}·I$, the loss is {float(value):.5g}")
        rows += [landscape.make_row(case, Fraction(a), value, slope, form=form) for form in FORMS]
    return rows


def measure_noise(generator: torch.Generator, sizes: list[list[int]]) -> Rows:
    """Measure eigenvalues, the largest and the one farthest from 1, at the level of ε or above."""
    tried = [(Case(d=2, L=1, n=10**8, ε=0.9), torch.tensor([1.0, 0.0], dtype=torch.float64))]
    for case in (case for d, L in sizes for case in list_cases(d, L)):
        least = case["ε"] / case["d"] ** (1 / (2 * case["L"]))
        for k in range(4):
            z = draw_normal(generator, case["d"])
            z = z / z.abs().max() * least * 10 ** (k / 2)
            tried += [(case, (1 + sign * z).clamp(min=0)) for sign in (1, -1)]
    rows = []
    for case, values in tried:
        largest, far = float(values.max()), float((values - 1).abs().max())
        if far >= case["ε"] / case["d"] ** (1 / (2 * case["L"])) * (1 - 1e-12):
            distances = {"top": largest + 1, "first": abs(largest - 1), "far": far}
            rows.append({"case": case.extend(λ=values), **distances})
    return rows


def measure_norms(generator: torch.Generator) -> Rows:
    """Measure the sums in the proof's step from the 2L-norm to the (4L − 2)-norm."""
    rows = []
    for d in range(1, 6):
        for L in range(1, 5):
            for k in range(8):
                z = torch.ones(d, dtype=torch.float64) if k == 0 else draw_normal(generator, d)
                high, low = (float((z**power).sum()) for power in (4 * L - 2, 2 * L))
                note = "all $z$ are 1" if k == 0 else "$z$ at random"
                rows.append({"case": Case(d=d, L=L, note=note), "high": high, "low": low})
    return rows
