"""Theorem 4: weights in proportion to the inverse covariance contain points of vanishing gradient.

Printed    x ~ N(0, Σ), w* ~ N(0, Σ⁻¹), layers of form (9): over S = {A_i = a_i Σ⁻¹}, the infimum of
           Σ_i ‖∇_{A_i} f‖² is 0
Tested     the exact loss for all matrices (a rule that integrates it, innerloop.theory.bartlett),
           Σ dense: optimised inside S, then differentiated in every entry of every A_i
Reading    all of A_0 … A_k act, as in (23); by (5) A_k has no effect, and its gradient is 0
Erratum    R̃_i = r_i I at (25); (27) and step 3 have r_i Σ⁻¹: tried at random points of S with
           random directions R that are not symmetric
Proof      of the corrected (25): that of the source. For orthogonal U and U_Σ = Σ^{1/2}UΣ^{−1/2}, x
           and U_Σx have one law, so that R and U_ΣᵀRU_Σ have one derivative at a point of S; their
           mean over U is r Σ⁻¹ with r = tr(Σ^{1/2}RΣ^{1/2})/d
Beyond     the infimum is attained, so that the footnote's doubt is settled for these sizes; the
           best point of S is a local minimum among all A_i, and no search over all of them ended
           lower (table)
"""

from __future__ import annotations

import torch

from innerloop.claims.ahn2023 import critical
from innerloop.claims.ahn2023.critical import Point, Slopes
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.theory.layers import LayeredLoss

SIGN = misprint(
    "proof (B.2), step 1",
    "$G(X, A) = X ∏(I − M Xᵀ A_i X)$",
    "$I + M Xᵀ A_i X$, as (22) and (29) have it",
    "$d = n = 1$, $k = 0$, all $x = w* = A_0 = 1$: by (22) $Y_1 = 2$ at the query, $w*ᵀG$ is 0",
)


def judge_theorem_4(data: Slopes) -> Evidence:
    zero = "$∇_{A_i} f = 0$ for all $i$ at the best $A$ in $S$, so that the infimum over $S$ is 0"
    return Evidence(
        parts=[Part(printed=critical.check_gradient_vanishes(data, zero))],
        errata=[
            critical.check_direction(data, "proof (B.2), after (25)", "$R̃_i = r_i$", block=0),
            SIGN,
        ],
        beyond=[critical.check_local_minima(data, "the best $A$ in $S$ is a local minimum of $f$")],
        table=data.rows,
    )


@claim(
    "ahn2023.theorem-4",
    "Among weights in proportion to the inverse covariance there are points where the gradient of "
    "the in-context loss, in all weights, vanishes or is as small as one likes.",
    where="Section 5.2, Theorem 4, with Appendix B.2",
    kind="equality",
    hypotheses={
        "$x ~ N(0, Σ)$, $w* ~ N(0, Σ⁻¹)$, $Σ ≻ 0$": "the theorem",
        "$k + 1$ layers": "(23), on which the proof rests",
    },
    quick={
        "cases": [[1, 1, 1], [2, 1, 2], [2, 5, 2], [3, 4, 2], [2, 20, 3], [2, 5, 4]],
        "trials": 24,
        "free": 2,
    },
    full={
        "cases": [[d, n, k] for d in (1, 2, 3) for n in (1, 3, 10, 50) for k in (1, 2, 3)]
        + [[4, 6, 1], [2, 8, 4], [2, 8, 5], [2, 8, 6]],
        "trials": 1000,
        "free": 20,
    },
    tiny={"cases": [[1, 1, 1], [2, 3, 2]], "trials": 6, "free": 0},
    judge=judge_theorem_4,
    falsified=critical.FALSIFIED,
)
def theorem_4(
    generator: torch.Generator, *, cases: list[list[int]], trials: int, free: int
) -> Slopes:
    law = LayeredLoss(torch.full((1, 1), 4.0, dtype=torch.float64), 1, 1)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    note = "$Σ = 4$, $A_0 = 0$, $R = 1$, $r = 4$: $f = E(1 + Ag)²$, $g/4$ chi-squared, $df = 8R$"
    simple = critical.measure_gradient(Point(law, 0 * one[:, 0, 0]), one, note)
    return critical.measure_slopes(generator, cases, trials, free, simple)
