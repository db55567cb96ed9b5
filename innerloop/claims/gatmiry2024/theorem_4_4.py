"""Theorem 4.4: a small loss puts A close to the minimiser.

Printed    for ε > 4δ, L(A, 0) ≤ ε^{2L}/2 implies (1 − cε)A^opt ≼ A ≼ (1 + cε)A^opt with
           c = 4 + 16d^{1/(2L)}; δ = (8Ld/√n)^{1/(2L)}
Tested     see `closeness`
Proof      for ε ≤ 1/2 or δ < 1: L(A, 0) ≥ ‖I − A^½Σ*A^½‖^{2L} (theorem-3.2) puts the eigenvalues λ
           of A^½Σ*A^½, and those of A^opt, whose loss is no more, within ε of 1. For ε ≤ 1/2
           |λ/b − 1| ≤ 2ε/b ≤ 4ε. Else cε > 1, so that the lower end is below 0, and for δ < 1
           b ≥ 1 − (2L − 1)η ≥ 0.64, hence 1 + ε ≤ (1 + cε)b
Beyond     the eigenvalues of Σ*^½AΣ*^½ are within L(A, 0)^{1/(2L)} of 1, whatever n. Among all
           matrices, ≼ the order of quadratic forms, it fails from two loops on: with N nilpotent
           (I − SB)^L stays small at B = b(I + tN) for t of order n^{1/4}
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
from innerloop.claims.gatmiry2024.landscape import delta


def half_level(epsilon: float, small: float, L: int) -> float:
    return epsilon ** (2 * L) / 2


def spread_bound(epsilon: float, small: float, root: float) -> float:
    return (4 + 16 * root) * epsilon


def judge_spread(rows: Rows) -> Evidence:
    # The lower end is proportional to δ at ε = 4δ, and δ to n^{−1/(4L)}.
    numbers: dict[str, float | int | str | bool | None] = {
        f"$n$ above which $1 − cε > 0$ at $ε = 4δ$, $L = {L}$, $d = {d}$": spread_bound(
            4 * delta(L, d, 1), 0.0, d ** (1 / (2 * L))
        )
        ** (4 * L)
        for d, L in ((1, 1), (1, 2), (2, 2))
    }
    return judge_closeness(rows, "$cε$, $c = 4 + 16d^{1/(2L)}$", spread_bound, numbers)


@claim(
    "gatmiry2024.theorem-4.4",
    "A loss of at most $ε^{2L}/2$, $ε > 4δ$, puts $A$ within a factor "
    "$1 ± (4 + 16d^{1/(2L)})ε$ of the minimiser.",
    where="Section 4, Theorem 4.4",
    kind="inequality",
    hypotheses={"$ε > 4δ$": "the theorem", **HYPOTHESES},
    quick={"sizes": SIZES, "extra": 3, "descents": 1},
    full={"sizes": SIZES, "extra": 60, "descents": 6},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 0, "descents": 0},
    judge=judge_spread,
    falsified=FALSIFIED,
)
def theorem_4_4(
    generator: torch.Generator, *, sizes: list[list[int]], extra: int, descents: int
) -> Rows:
    return measure_closeness(generator, sizes, extra, descents, 4.0, half_level, spread_bound)
