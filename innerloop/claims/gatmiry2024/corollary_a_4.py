"""Corollary A.4: the loss of a looped transformer with A and u, in closed form.

Printed    L(A, u) = E tr((I − A^½ΣA^½)^{2L}) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ^½‖², Σ = (1/n) XXᵀ
Tested     as lemma-A.3, with one positive semidefinite A for all loops; the corrected form on
           other A as well
Wrong      lemma-A.3's Σ for Σ*. The trace is the first term where A is a multiple of Σ*⁻¹ and only
           there (lemma-4.1); E[rΣrᵀ] is not E[rΣ*rᵀ] at d = 1 already
Corrected  E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ*^½‖², any A and n
Proof      lemma-A.3's correction with R = (I − ΣA)^L
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.losses import (
    CORRECTED_FORM,
    FALSIFIED,
    Rows,
    check_form,
    draw_stack,
    list_stacks,
    measure_forms,
    trace_form,
)


def judge_loss(rows: Rows) -> Evidence:
    row = "E‖∑_i uᵀΣA(I − ΣA)^{L−1−i}"
    statement = f"$L = E tr((I − A^½ΣA^½)^{{2L}}) + {row}Σ^½‖²$"
    mended = f"$L = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L) + {row}Σ*^½‖²$"
    return Evidence(
        parts=[
            Part(
                printed=check_form(rows, "printed", statement),
                corrected=check_form(rows, "corrected", mended),
            )
        ]
    )


@claim(
    "gatmiry2024.corollary-A.4",
    "The loss of a looped transformer is an expected trace of a power of the sample "
    "covariance between roots of $A$, and a term in $u$.",
    where="Appendix A.1, Corollary A.4",
    kind="equality",
    hypotheses={"$A$ positive semidefinite": "$A^½$, in the corollary", "$n > d$": "Section 3.2"},
    quick={"trials": 50},
    full={"trials": 1000},
    tiny={"trials": 4},
    judge=judge_loss,
    falsified=FALSIFIED,
)
def corollary_a_4(generator: torch.Generator, *, trials: int) -> Rows:
    stacks = list_stacks(flat=False)
    stacks += [draw_stack(generator, k, shared=True) for k in range(trials)]
    return measure_forms(stacks, {"printed": trace_form, "corrected": CORRECTED_FORM})
