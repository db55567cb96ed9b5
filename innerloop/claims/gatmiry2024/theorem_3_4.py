"""Theorem 3.4: gradient dominance with power (2L − 1)/L, with the threshold of the text.

Printed    Σ* = I: any A with L(A, 0) ≥ 16Ld4^L/√n has ‖∇_A L(A, 0)‖² ≥ (1/16) L(A, 0)^{(2L−1)/L}
Tested     as theorem-A.11; the threshold is 2(2δ)^{2L}, 4^L times lower than that of the appendix,
           which calls itself a restatement
Correction as in theorem-A.11: the factor d^{−(L−1)/L}, and n ≥ d². Under the lower threshold a
           minimiser is above it earlier: L = 1, d = 2^14, n = d + 1
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.gatmiry2024.theorem_a_11 import (
    FALSIFIED,
    SIZES,
    Factor,
    Power,
    check_dominance,
    hoelder_factor,
    stated_power,
)


@claim(
    "gatmiry2024.theorem-3.4",
    "From a loss of 16Ld4^L/√n on, the squared gradient is at least a sixteenth of the loss to the "
    "power (2L − 1)/L.",
    where="Section 3.7, Theorem 3.4",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 6, "searches": 3},
    full={"sizes": [*SIZES, [3, 2]], "extra": 60, "searches": 20},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 1, "searches": 1},
    falsified=FALSIFIED,
)
def theorem_3_4(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    extra: int,
    searches: int,
    factor: Factor = hoelder_factor,
    power: Power = stated_power,
) -> Evidence:
    return check_dominance(generator, 2.0, sizes, extra, searches, factor, power)
