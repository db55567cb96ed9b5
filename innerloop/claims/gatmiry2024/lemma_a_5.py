"""Lemma A.5: Lemma 4.2 once more, with δ where that has δ^k.

Printed    λ_j^k − δλ_1^k ≤ α_j ≤ λ_j^k + δλ_1^k for the k-th moment of the sample covariance; no
           range of k
Readings   δ = 4kd/√n as section 3.7 has it and the proof ends with; δ = (8Ld/√n)^{1/(2L)} as
           section 3.5 has it, more than its k-th power where n is large; k ≤ 2L as in Lemma 4.2
Tested     as lemma-4.2
Correction the upper bound needs n ≥ 4k²d², as there
Note       the proof's third line has λ_j^k where λ_1 stood before, and its last, a lower bound
           n^kλ_j^k(1 − 4kd/√n), is below the truth: α_j ≥ λ_j^k
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.gatmiry2024 import moments
from innerloop.claims.gatmiry2024.lemma_4_2 import FALSIFIED, check_moments
from innerloop.claims.gatmiry2024.moments import Width


@claim(
    "gatmiry2024.lemma-A.5",
    "Moments of the sample covariance share its law's eigenvectors, with eigenvalues within "
    "δ λ_1^k of λ_j^k.",
    where="Appendix A.1, Lemma A.5",
    kind="inequality",
    quick={"trials": 120},
    full={"trials": 3000},
    tiny={"trials": 12},
    falsified=FALSIFIED,
)
def lemma_a_5(
    generator: torch.Generator,
    *,
    trials: int,
    scale: float = 1.0,
    turned: bool = False,
    own: bool = True,
) -> Evidence:
    readings: dict[str, Width] = {
        "δ = 4kd/√n": moments.plain_width,
        "δ of section 3.5": moments.bare_section_width,
    }
    return check_moments(generator, trials, readings, scale, turned, own)
