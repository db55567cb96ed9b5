"""Lemma A.3: the loss of stacked layers with A^(i) and u^(i) of their own, in closed form.

Printed    L(A, u) = E‖Σ^{−½}∏(I − ΣA^(i))Σ^½‖² + E‖Σ_i d_iᵀΣA^(i)∏_{j>i}(I − ΣA^(j))Σ^½‖², d_i the
           u^(i) of (11), Σ = (1/n) XXᵀ; on the way, E over w* leaves E[x_qᵀ(∏)²x_q]
Tested     the layers run on tokens; expectations over the context by a rule that is exact for
           polynomials. A^(i) dense and not symmetric, Σ* dense, up to 3 layers, n ≥ d, d ≤ 2
Readings   Σ is the sample's everywhere, as (12) has it; the norm is Frobenius's
Correction what stands outside comes from w* and x_q, whose law has Σ*, not the sample's Σ:
           E‖Σ*^{−½}∏Σ*^½‖² + E‖Σ_i … Σ*^½‖²; and over w*, E[x_qᵀ∏ᵀΣ*⁻¹∏x_q]
Note       all later statements stand on the printed form, see corollary-A.4 and lemma-4.1
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024 import losses
from innerloop.claims.gatmiry2024.losses import CORRECTED_FORM, Case, Form, closed_form, products
from innerloop.claims.trials import Equality

PRINTED = closed_form("sample")


def reversed_form(case: Case, S: Tensor) -> Tensor:
    """The corrected form with A and u of the layers in reverse order."""
    return CORRECTED_FORM(case._replace(A=case.A.flip(0), u=case.u.flip(0)), S)


def _after_weights(case: Case, S: Tensor, between: Tensor | None) -> Tensor:
    """E over x_q of x_qᵀ(∏)²x_q, or of x_qᵀ∏ᵀ·between·∏x_q, with the term in u."""
    R, row = products(case, S)
    square = R @ R if between is None else R.mT @ between @ R
    first = torch.einsum("pij,ji->p", square, case.star)
    return first + (row @ case.star @ row.mT).squeeze(-1).squeeze(-1)


@claim(
    "gatmiry2024.lemma-A.3",
    "The loss of stacked layers with their own A and u is the sum of two expected squared norms "
    "over the sample covariance.",
    where="Appendix A.1, Lemma A.3 and its proof",
    kind="equality",
    quick={"trials": 50},
    full={"trials": 1000},
    tiny={"trials": 5},
    falsified={
        "Σ*^½ and Σ*^{−½} change places": {"corrected": closed_form("law", swapped=True)},
        "the layers in reverse": {"corrected": reversed_form},
        "Σ* for Σ*⁻¹ between": {"prior": lambda star: star},
    },
)
def lemma_a_3(
    generator: torch.Generator,
    *,
    trials: int,
    corrected: Form = CORRECTED_FORM,
    prior: losses.Prior = torch.linalg.inv,
) -> Evidence:
    whole = Equality("L = E‖Σ^{−½}∏Σ^½‖² + E‖Σ_i d_iᵀΣA^(i)∏Σ^½‖², Σ the sample's", tolerance=1e-8)
    right = Equality("L = E‖Σ*^{−½}∏Σ*^½‖² + E‖Σ_i d_iᵀΣA^(i)∏Σ*^½‖²", tolerance=1e-8)
    step = Equality("over w*: E[x_qᵀ(∏)²x_q] + E[(Σ_i … x_q)²]", tolerance=1e-8)
    mended = Equality("over w*: E[x_qᵀ∏ᵀΣ*⁻¹∏x_q] + E[(Σ_i … x_q)²]", tolerance=1e-8)
    cases = losses.smallest_cases(flat=False)
    cases += [losses.draw_case(generator, k, shared=False) for k in range(trials)]
    forms: list[tuple[Equality, Form]] = [
        (whole, PRINTED),
        (right, corrected),
        (step, lambda case, S: _after_weights(case, S, None)),
        (mended, lambda case, S: _after_weights(case, S, prior(case.star))),
    ]
    losses.compare_forms(cases, forms)
    parts = [
        Part(printed=whole.check(), corrected=right.check()),
        Part(printed=step.check(), corrected=mended.check()),
    ]
    return Evidence(parts=parts, numbers=losses.describe_sizes())
