"""Lemma 4.2: the moments of a sample covariance are near the powers of the covariance.

Printed    x̃ᵢ ~ N(0, Σ̃), Σ̃ = Σ λ_j u_j u_jᵀ, λ_1 ≥ … ≥ λ_d: for 1 ≤ k ≤ 2L the k-th moment of the
           sample covariance is Σ α_j u_j u_jᵀ and λ_j^k − δ^kλ_1^k ≤ α_j ≤ λ_j^k + δ^kλ_1^k
Readings   δ = (8Ld/√n)^{1/(2L)} as section 3.5 has it; δ^k = 4kd/√n as Lemma A.7 has it
Tested     exact moments, λ over two decades and all equal, d ≤ 4, L ≤ 4, every k; n > d, all that
           is asked of n, and n ≥ 4k²d², which Lemma A.2 asks for
Correction the upper bound needs n ≥ 4k²d². Below, at d = 1, n = 2, L = 2: E[s⁴] = 24 (s is an
           exponential) and the bound is 1 + 16/√2 = 12.3
Beyond     α_j ≥ λ_j^k for every n: the lower bound never needs its δ. α_j − λ_j^k falls as 1/n, not
           as the bound's n^{−1/2} (or n^{−k/(4L)})
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.gatmiry2024 import moments
from innerloop.claims.gatmiry2024.moments import Bounds, Width
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.prompts import draw_covariance
from innerloop.claims.trials import Equality
from innerloop.theory.looped import isotropic_moments
from innerloop.theory.wishart import Wishart

FALSIFIED = {
    "a hundredth of the width": {"scale": 0.01},
    "the lower bound above": {"turned": True},
    "the basis of another matrix": {"own": False},
}


def check_moments(
    generator: torch.Generator,
    trials: int,
    readings: dict[str, Width],
    scale: float,
    turned: bool,
    own: bool,
) -> Evidence:
    """Check the statement under each reading of its δ."""
    found = [Part(printed=_basis(generator, trials, own))]
    for name, width in readings.items():
        for_n = {
            least: Bounds(f"{name}, {least}", width, scale, turned) for least in EXAMPLE_RANGES
        }
        for least, bounds in for_n.items():
            for case in moments.draw_spectra(generator, trials, least):
                top = float(case.values[0])
                for k in range(1, len(case.powers)):
                    bounds.add(case, k, case.powers[k], case.values**k, top**k)
        found += moments.build_parts(*for_n.values())
    sizes = [10, 100, 1000, 10_000, 100_000]
    excess = [float(isotropic_moments(3, n, 4)[4] - 1) for n in sizes]
    slope, low, high = fit_exponent([float(n) for n in sizes[1:]], excess[1:])
    numbers = {
        "exponent of α − λ^k in n, k = 4, d = 3": slope,
        "its 95 % interval, from": low,
        "its 95 % interval, to": high,
    }
    table = [
        {"n": n, "α − 1 at k = 4, d = 3, λ = 1": value, "4kd/√n": moments.plain_width(2, 4, 3, n)}
        for n, value in zip(sizes, excess, strict=True)
    ]
    return Evidence(parts=found, numbers=numbers, table=table)


EXAMPLE_RANGES = ("n > d", "n ≥ 4k²d²")


def _basis(generator: torch.Generator, trials: int, own: bool) -> Check:
    trial = Equality("the k-th moment has the eigenvectors of the covariance")
    for k in range(trials):
        d, n = 2 + k % 3, 3 + k % 5
        S, other = (draw_covariance(generator, d, 20.0) for _ in range(2))
        power = 2 + k % 5
        moment = Wishart(S / n, n).power(power)
        about = f"d = {d}, n = {n}, k = {power}"
        moments.add_shared_basis(trial, moment, S if own else other, about, (d, n))
    return trial.check()


@claim(
    "gatmiry2024.lemma-4.2",
    "Moments of the sample covariance share its law's eigenvectors, with eigenvalues within "
    "δ^k λ_1^k of λ_j^k.",
    where="Section 4, Lemma 4.2",
    kind="inequality",
    quick={"trials": 120},
    full={"trials": 3000},
    tiny={"trials": 12},
    falsified=FALSIFIED,
)
def lemma_4_2(
    generator: torch.Generator,
    *,
    trials: int,
    scale: float = 1.0,
    turned: bool = False,
    own: bool = True,
) -> Evidence:
    readings: dict[str, Width] = {
        "δ of section 3.5, to the k": moments.section_width,
        "δ^k = 4kd/√n": moments.plain_width,
    }
    return check_moments(generator, trials, readings, scale, turned, own)
