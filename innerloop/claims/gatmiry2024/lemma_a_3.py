"""Lemma A.3: the loss of layers that share no weights, in closed form.

Printed    L(A, u) = E‖Σ^{−½}∏(I − ΣA^(i))Σ^½‖² + E‖Σ_i d_iᵀΣA^(i)∏_{j>i}(I − ΣA^(j))Σ^½‖²,
           Σ = (1/n) XXᵀ
Tested     the layers of (11) run on tokens; expectations over the context by a rule that is exact
           for polynomials. A^(i) dense and not symmetric, Σ* dense, up to 3 layers, d ≤ 2; the
           source's hard matrices
Reading    Σ is the sample's everywhere, as (12) has it and as Corollary A.4 goes on with it, where
           Σ^{−½}ΣAΣ^½ becomes Σ^½AΣ^½; the norm is Frobenius's
Wrong      what stands outside comes from w* and x_q, whose law has Σ*, not the sample's Σ
Corrected  E‖Σ*^{−½}∏Σ*^½‖² + E‖Σ_i … Σ*^½‖², any A^(i) and n
Proof      the error is w*ᵀRx_q + rx_q up to sign, R = ∏ and r = Σ_i … functions of X. w* has mean 0
           and is independent of the rest: E[(w*ᵀRx_q)²] + E[(rx_q)²], and with E[w*w*ᵀ] = Σ*⁻¹,
           E[x_qx_qᵀ] = Σ*: E tr(Σ*⁻¹RΣ*Rᵀ) + E[rΣ*rᵀ]
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Erratum, Evidence, Part, misprint
from innerloop.claims.gatmiry2024.losses import (
    CORRECTED_FORM,
    FALSIFIED,
    Rows,
    Stack,
    check_form,
    closed_form,
    draw_stack,
    list_stacks,
    measure_forms,
    products,
)


def _after_weights(stack: Stack, S: Tensor) -> Tensor:
    """E over x_q of x_qᵀ(∏)²x_q, with the term in u."""
    R, row = products(stack, S)
    first = torch.einsum("pij,ji->p", R @ R, stack.star)
    return first + (row @ stack.star @ row.mT).squeeze(-1).squeeze(-1)


def judge_loss(rows: Rows) -> Evidence:
    statement = "$L = E‖Σ^{−½}∏Σ^½‖² + E‖∑_i d_iᵀΣA^(i)∏Σ^½‖²$, $Σ$ the sample's"
    mended = "$L = E‖Σ*^{−½}∏Σ*^½‖² + E‖∑_i d_iᵀΣA^(i)∏Σ*^½‖²$"
    return Evidence(
        parts=[
            Part(
                printed=check_form(rows, "printed", statement),
                corrected=check_form(rows, "corrected", mended),
                reading="$Σ$ is the sample's everywhere: (12) has it, and Corollary A.4 makes "
                "$Σ^½AΣ^½$ of $Σ^{−½}ΣAΣ^½$",
            )
        ],
        errata=[
            Erratum(
                where="proof of Lemma A.3, the expectation over $w*$",
                printed=check_form(rows, "step", "$L = E[x_qᵀ(∏)²x_q] + E[(∑_i … x_q)²]$"),
                corrected=check_form(
                    rows,
                    "corrected",
                    "$L = E[x_qᵀ∏ᵀΣ*⁻¹∏x_q] + E[(∑_i … x_q)²]$, $E$ over $x_q$ and $X$",
                ),
            ),
            misprint(
                "Lemma A.3 and its proof",
                "the vectors in $P$ are $d_i$",
                "$u^(i)$, as in (11) and Theorem A.1",
                "$L(A, u)$ on the left has no $d$, which is the dimension",
            ),
        ],
    )


@claim(
    "gatmiry2024.lemma-A.3",
    "The loss of stacked layers with their own $A$ and $u$ is the sum of two expected "
    "squared norms over the sample covariance.",
    where="Appendix A.1, Lemma A.3 and its proof",
    kind="equality",
    hypotheses={"$n > d$": "Section 3.2", "$w* ~ N(0, Σ*⁻¹)$, $x_q ~ N(0, Σ*)$": "Section 3.2"},
    quick={"trials": 50},
    full={"trials": 1000},
    tiny={"trials": 4},
    judge=judge_loss,
    falsified=FALSIFIED,
)
def lemma_a_3(generator: torch.Generator, *, trials: int) -> Rows:
    stacks = list_stacks(flat=False)
    stacks += [draw_stack(generator, k, shared=False) for k in range(trials)]
    forms = {"printed": closed_form("sample"), "corrected": CORRECTED_FORM, "step": _after_weights}
    return measure_forms(stacks, forms)
