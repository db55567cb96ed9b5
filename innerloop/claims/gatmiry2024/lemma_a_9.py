"""Lemma A.9: a small loss puts A close to the minimiser, with the appendix' constants.

Printed    for ε > 2δ, L(A, 0) ≤ ε^{2L} − δ^{2L}(ε + 2)^{2L} implies
           (1 − (4ε + 16δd^{1/(2L)}))A^opt ≼ A ≼ (1 + (4ε + 16δd^{1/(2L)}))A^opt
Tested     see `closeness`, at those ε for which the level is positive at all: for δ < 1, that is
           n > 64L²d², and ε > 2δ/(1 − δ)
Proof      as for theorem-4.4: |λ − 1| ≤ ε and |b − 1| ≤ ε. For ε ≤ 1/2 |λ/b − 1| ≤ 4ε; else the
           lower end is below 0, b ≥ 1 − (2L − 1)η ≥ 0.64, and 1 + ε ≤ (1 + 4ε)b
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.gatmiry2024.closeness import (
    FALSIFIED,
    HYPOTHESES,
    SIZES,
    Rows,
    judge_closeness,
    measure_closeness,
)


def level(epsilon: float, small: float, L: int) -> float:
    return epsilon ** (2 * L) - (small * (epsilon + 2)) ** (2 * L)


def spread_bound(epsilon: float, small: float, root: float) -> float:
    return 4 * epsilon + 16 * small * root


def judge_spread(rows: Rows) -> Evidence:
    return judge_closeness(rows, "$(4ε + 16δd^{1/(2L)})$", spread_bound, {})


@claim(
    "gatmiry2024.lemma-A.9",
    "A loss of at most $ε^{2L} − δ^{2L}(ε + 2)^{2L}$, $ε > 2δ$, puts $A$ within a factor "
    "$1 ± (4ε + 16δd^{1/(2L)})$ of the minimiser.",
    where="Appendix A.1, Lemma A.9",
    kind="inequality",
    hypotheses={"$ε > 2δ$": "the lemma", **HYPOTHESES},
    quick={"sizes": SIZES, "extra": 3, "descents": 1},
    full={"sizes": SIZES, "extra": 60, "descents": 6},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 0, "descents": 0},
    judge=judge_spread,
    falsified=FALSIFIED,
)
def lemma_a_9(
    generator: torch.Generator, *, sizes: list[list[int]], extra: int, descents: int
) -> Rows:
    return measure_closeness(generator, sizes, extra, descents, 2.0, level, spread_bound)
