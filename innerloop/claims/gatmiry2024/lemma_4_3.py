"""Lemma 4.3: E[(I − A^½ΣA^½)^k] is near (I − A^½Σ*A^½)^k, eigenvalue by eigenvalue.

Printed    A^½Σ*A^½ = Σ λ_i u_i u_iᵀ: for k ≤ 2L, E[(I − A^½ΣA^½)^k] = Σ β_i u_i u_iᵀ and
           |β_i − (1 − λ_i)^k| ≤ δ^k(λ_1 + 1)^k
Readings   δ = (8Ld/√n)^{1/(2L)} as section 3.5 has it; δ^k = 4kd/√n as Lemma A.7 has it
Tested     exact moments; the eigenvectors from words in Σ* and A that do not commute, the bounds
           with λ over two decades, d ≤ 4, L ≤ 4, n > d, and n ≥ 4k²d² as in Lemma A.2
Correction where it fails for n > d, the bound needs n ≥ 4k²d²
Beyond     at λ = 1 and k = 2L, β falls as n^{−L}, the bound as n^{−1/2}
Note       the sums run to d, not n; the text before speaks of A^½E[(I − ΣA)^k]A^{−½}, which is the
           same matrix
"""

from __future__ import annotations

from fractions import Fraction

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.gatmiry2024 import moments
from innerloop.claims.gatmiry2024.lemma_4_2 import EXAMPLE_RANGES, FALSIFIED
from innerloop.claims.gatmiry2024.moments import Bounds, NonCommuting, Width
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.trials import Equality
from innerloop.theory.looped import isotropic_loss


@claim(
    "gatmiry2024.lemma-4.3",
    "E[(I − A^½ΣA^½)^k] shares the eigenvectors of A^½Σ*A^½, with eigenvalues within "
    "δ^k (λ_1 + 1)^k of (1 − λ_i)^k.",
    where="Section 4, Lemma 4.3",
    kind="inequality",
    quick={"trials": 120},
    full={"trials": 3000},
    tiny={"trials": 12},
    falsified=FALSIFIED,
)
def lemma_4_3(
    generator: torch.Generator,
    *,
    trials: int,
    scale: float = 1.0,
    turned: bool = False,
    own: bool = True,
) -> Evidence:
    parts = [Part(printed=check_eigenvectors(generator, trials, own))]
    for name, width in READINGS.items():
        parts += check_bounds(generator, trials, name, width, scale, turned)
    return Evidence(parts=parts, numbers=measure_decay())


READINGS: dict[str, Width] = {
    "δ of section 3.5, to the k": moments.section_width,
    "δ^k = 4kd/√n": moments.plain_width,
}


def check_bounds(
    generator: torch.Generator,
    trials: int,
    name: str,
    width: Width,
    scale: float,
    turned: bool,
) -> list[Part]:
    """Check both bounds for one reading of δ."""
    for_n = {least: Bounds(f"{name}, {least}", width, scale, turned) for least in EXAMPLE_RANGES}
    for least, found in for_n.items():
        for case in moments.draw_spectra(generator, trials, least):
            top = 1 + float(case.values[0])
            for k in range(1, len(case.powers)):
                found.add(case, k, case.shifted_eigenvalues(k), (1 - case.values) ** k, top**k)
    return moments.build_parts(*for_n.values())


def check_eigenvectors(generator: torch.Generator, trials: int, own: bool) -> Check:
    trial = Equality("E[(I − A^½ΣA^½)^k] has the eigenvectors of A^½Σ*A^½", tolerance=1e-8)
    for t in range(max(4, trials // 10)):
        case, k = NonCommuting.draw(generator, t), 2 + t % 2
        about = f"d = {len(case.A)}, n = {case.n}, k = {k}"
        basis = case.inner() if own else case.star
        moments.add_shared_basis(trial, case.shifted_moment(k), basis, about, (len(case.A), k))
    return trial.check()


def measure_decay() -> dict[str, float | int | str | bool | None]:
    """Fitted exponents of β over n at λ = 1, to compare with the bound's."""
    sizes = [1000, 10_000, 100_000]
    found: dict[str, float | int | str | bool | None] = {}
    for loops in (1, 2, 3):
        values = [float(isotropic_loss(3, n, loops, Fraction(1))) for n in sizes]
        slope = fit_exponent([float(n) for n in sizes], values)[0]
        found[f"exponent of β in n at λ = 1, k = {2 * loops}, d = 3"] = slope
    return found
