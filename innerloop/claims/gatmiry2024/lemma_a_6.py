"""Lemma A.6: the covariance can be moved from between the roots of A into the law of x.

Printed    E tr((I − A^½ΣA^½)^{2L}) = tr E[(I − Σ̃)^{2L}], Σ̃ the sample covariance of n columns
           x̃ ~ N(0, A^½Σ*A^½)
Tested     exact moments on both sides: words in Σ* and A on the left, powers of A^½Σ*A^½ on the
           right; A and Σ* dense and not commuting, and n of any size
Erratum    the sentence before has a factor Σ^½ more, which no other form of the loss has
"""

from __future__ import annotations

from math import comb

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.gatmiry2024.moments import NonCommuting
from innerloop.claims.trials import Equality, check_rows
from innerloop.theory.wishart import Wishart

Rows = list[tuple[Case, float, float]]
"""A case, the trace between roots and the trace in the law of x."""


def judge_traces(rows: Rows) -> Evidence:
    moved = Equality("$E tr((I − A^½ΣA^½)^{2L}) = tr E[(I − Σ̃)^{2L}]$", tolerance=1e-8)
    return Evidence(
        parts=[Part(printed=check_rows(moved, rows))],
        errata=[
            misprint(
                "Lemma A.6",
                "the first part of the loss is $E tr((I − A^½ΣA^½)^{2L}Σ^½)$",
                "$E tr((I − A^½ΣA^½)^{2L})$, as in the display and in Corollary A.4",
                "$A = 0$, $d = 1$, $n = 2$, $Σ* = 1$, any $L$: $E√Σ = √π/2 = 0.886$, and the "
                "display has 1",
            )
        ],
    )


@claim(
    "gatmiry2024.lemma-A.6",
    "The trace over $A^½ΣA^½$ is one over the sample covariance of columns with covariance "
    "$A^½Σ*A^½$.",
    where="Appendix A.1, Lemma A.6",
    kind="equality",
    hypotheses={"$A$ positive semidefinite": "$A^½$, in the lemma"},
    quick={"trials": 60, "loops": 2},
    full={"trials": 400, "loops": 3},
    tiny={"trials": 8, "loops": 1},
    judge=judge_traces,
    falsified={
        f"traces {times} times as large": lambda rows, times=times: [
            (case, left, times * right) for case, left, right in rows
        ]
        for times in (1.000001, -1.0)
    },
)
def lemma_a_6(generator: torch.Generator, *, trials: int, loops: int) -> Rows:
    rows = []
    for t in range(trials):
        case, L = NonCommuting.draw(generator, t), 1 + t % loops
        words, powers = (Wishart(law / case.n, case.n) for law in (case.star, case.inner()))
        left = right = float(len(case.A))
        for j in range(1, 2 * L + 1):
            factor = (-1) ** j * comb(2 * L, j)
            left += factor * float(words.trace([case.A] * j))
            right += factor * float(powers.power(j).trace())
        rows.append((Case(d=len(case.A), L=L, n=case.n), left, right))
    return rows
