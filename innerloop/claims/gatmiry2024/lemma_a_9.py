"""Lemma A.9: a small loss puts A close to the minimiser, with the appendix' constants.

Printed    for ε > 2δ, L(A, 0) ≤ ε^{2L} − δ^{2L}(ε + 2)^{2L} implies
           (1 − (4ε + 16δd^{1/(2L)}))A^opt ≼ A ≼ (1 + (4ε + 16δd^{1/(2L)}))A^opt
Tested     as theorem-4.4, at those ε for which the level is positive at all
Correction for A symmetric, as there
Note       the level is positive only for δ < 1 and ε > 2δ/(1 − δ): between that and 2δ the lemma
           speaks of no A, and δ < 1 asks for n > 64L²d²
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.gatmiry2024.theorem_4_4 import SIZES, Spread, check_closeness


def level(epsilon: float, d: float, L: int) -> float:
    return epsilon ** (2 * L) - (d * (epsilon + 2)) ** (2 * L)


def spread_bound(epsilon: float, d: float, root: float) -> float:
    return 4 * epsilon + 16 * d * root


@claim(
    "gatmiry2024.lemma-A.9",
    "A loss of at most ε^{2L} − δ^{2L}(ε + 2)^{2L}, ε > 2δ, puts A within a factor "
    "1 ± (4ε + 16δd^{1/(2L)}) of the minimiser.",
    where="Appendix A.1, Lemma A.9",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 3},
    full={"sizes": SIZES, "extra": 60},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 0},
    falsified={"a hundredth": {"wide": lambda e, d, root: spread_bound(e, d, root) / 100}},
)
def lemma_a_9(
    generator: torch.Generator, *, sizes: list[list[int]], extra: int, wide: Spread = spread_bound
) -> Evidence:
    return check_closeness(generator, sizes, extra, 2.0, level, wide)
