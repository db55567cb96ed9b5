"""Lemma A.6: the covariance can be moved from between the roots of A into the law of x.

Printed    the first part of the loss, E tr((I − A^½ΣA^½)^{2L}Σ^½), is written as
           E tr((I − A^½ΣA^½)^{2L}) = tr E[(I − Σ̃)^{2L}], Σ̃ the sample covariance of n columns
           N(0, A^½Σ*A^½)
Tested     exact moments on both sides: words in Σ* and A, powers in A^½Σ*A^½; dense, A and Σ* not
           commuting
Correction without the factor Σ^½ of the introduction, which is in no other form of the loss: at
           A = 0, d = 1, n = 1, Σ* = 1 it is E|x| = √(2/π), and the trace is 1
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb, pi

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.moments import NonCommuting
from innerloop.claims.trials import Equality
from innerloop.theory.wishart import Wishart


@claim(
    "gatmiry2024.lemma-A.6",
    "The trace over A^½ΣA^½ is one over the sample covariance of columns with covariance A^½Σ*A^½.",
    where="Appendix A.1, Lemma A.6",
    kind="equality",
    quick={"trials": 60, "loops": 2},
    full={"trials": 400, "loops": 3},
    tiny={"trials": 8, "loops": 1},
    falsified={"columns with covariance A": {"law": lambda case: case.A}},
)
def lemma_a_6(
    generator: torch.Generator,
    *,
    trials: int,
    loops: int,
    law: Callable[[NonCommuting], Tensor] = NonCommuting.inner,
) -> Evidence:
    moved = Equality("E tr((I − A^½ΣA^½)^{2L}) = tr E[(I − Σ̃)^{2L}]", tolerance=1e-8)
    for t in range(trials):
        case, L = NonCommuting.draw(generator, t), 1 + t % loops
        left = right = torch.tensor(float(len(case.A)), dtype=torch.float64)
        words, powers = Wishart(case.star / case.n, case.n), Wishart(law(case) / case.n, case.n)
        for j in range(1, 2 * L + 1):
            factor = (-1) ** j * comb(2 * L, j)
            left = left + factor * words.trace([case.A] * j)
            right = right + factor * powers.power(j).trace()
        about = f"d = {len(case.A)}, n = {case.n}, L = {L}"
        moved.add(left, right, size=(len(case.A), L), about=about)
    factor = Equality("E tr((I − A^½ΣA^½)^{2L}Σ^½) = E tr((I − A^½ΣA^½)^{2L})")
    about = "A = 0, d = 1, n = 1, Σ* = 1, any L: E|x| = √(2/π) = 0.798 where 1 is stated"
    factor.add((2 / pi) ** 0.5, 1.0, size=(1,), about=about)
    check = moved.check()
    return Evidence(parts=[Part(printed=check), Part(printed=factor.check(), corrected=check)])
