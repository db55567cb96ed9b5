"""Lemma 4.1: the loss of a looped transformer at u = 0, in closed form.

Printed    L(A, 0) = E tr((I − A^½ΣA^½)^{2L}), Σ = (1/n) Σᵢ xᵢxᵢᵀ
Tested     as corollary-A.4, with u = 0, A positive definite
Correction L(A, 0) = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AΣ)^L): the printed form where A = cΣ*⁻¹, and only
           there (the second part). The printed value is never more than the loss
Beyond     by exact moments for L = 1 the difference is (d tr(B²) − (tr B)²)/n, B = Σ*^½AΣ*^½:
           0 if and only if B is a multiple of I
Note       the lemma carries the landscape of all later statements: where its two sides part, they
           are tested with both, the transformer's loss (section 3.5) and this trace
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.gatmiry2024 import losses
from innerloop.claims.gatmiry2024.corollary_a_4 import relative_difference
from innerloop.claims.gatmiry2024.losses import (
    CORRECTED_FORM,
    Case,
    Form,
    closed_form,
    measure_loss,
    trace_form,
)
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.looped import LoopedLoss


@claim(
    "gatmiry2024.lemma-4.1",
    "At u = 0 the loss of a looped transformer is the expected trace of (I − A^½ΣA^½)^{2L}.",
    where="Section 4, Lemma 4.1",
    kind="equality",
    quick={"trials": 50},
    full={"trials": 1000},
    tiny={"trials": 5},
    falsified={
        "Σ*^½ and Σ*^{−½} change places": {"corrected": closed_form("law", swapped=True)},
        "A = cI": {"aligned": lambda star: torch.eye(len(star), dtype=star.dtype)},
        "the trace is never less": {"sign": -1.0},
    },
)
def lemma_4_1(
    generator: torch.Generator,
    *,
    trials: int,
    corrected: Form = CORRECTED_FORM,
    aligned: Callable[[Tensor], Tensor] = torch.linalg.inv,
    sign: float = 1.0,
) -> Evidence:
    printed = Equality("L(A, 0) = E tr((I − A^½ΣA^½)^{2L})", tolerance=1e-8)
    right = Equality("L(A, 0) = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AΣ)^L)", tolerance=1e-8)
    only = Equality("L(A, 0) = E tr((I − A^½ΣA^½)^{2L}) for A = cΣ*⁻¹", tolerance=1e-8)
    below = Inequality("E tr((I − A^½ΣA^½)^{2L}) ≤ L(A, 0)", rounding=1e-9)
    cases = losses.smallest_cases(flat=True)
    cases += [losses.draw_case(generator, k, shared=True, flat=True) for k in range(trials)]
    losses.compare_forms(cases, [(printed, trace_form), (right, corrected)])
    furthest = 0.0
    for case in cases:
        furthest = max(furthest, relative_difference(case))
        _less(below, case, sign)
        A = aligned(case.star) * case.A.norm() / case.star.norm()
        losses.compare_forms([case._replace(A=A.expand_as(case.A))], [(only, trace_form)])
    parts = [
        Part(printed=printed.check(), corrected=right.check()),
        Part(printed=only.check()),
        Part(printed=below.check()),
    ]
    numbers = {
        **losses.describe_sizes(),
        "largest share of the loss that the trace lacks": furthest,
    }
    return Evidence(parts=parts, numbers=numbers, figures=[_figure()])


def _less(trial: Inequality, case: Case, sign: float) -> None:
    X, mass = case.context()
    value = float(trace_form(case, X.mT @ X / case.n) @ mass)
    (L, d), about = case.u.shape, case.description
    about = about or f"d = {d}, n = {case.n}, L = {L}"
    trial.add(sign * value, sign * float(measure_loss(case)), size=case.size, about=about)


def _figure() -> Figure:
    """Plot both forms along A = diag(1 + t, 1 − t), d = 2, n = 8."""
    rows = []
    for loops in (1, 2, 3):
        law = LoopedLoss(2, 8, loops)
        for k in range(41):
            t = k / 40
            B = torch.diag(torch.tensor([1 + t, 1 - t], dtype=torch.float64))
            pairs = (("loss", law.loss(B)), ("printed trace", law.trace_loss(B)))
            panel = f"{loops} loop{'s' if loops > 1 else ''}"
            rows += [{"t": t, "value": float(v), "form": f, "loops": panel} for f, v in pairs]
    return Figure(
        title="The loss and its printed form, Σ* = I, d = 2, n = 8, A = diag(1 + t, 1 − t)",
        rows=rows,
        x=Axis(field="t", title="t, 0 where A is a multiple of the identity"),
        y=Axis(field="value", title="expected squared error"),
        colour=Axis(field="form", title="form", scale="category"),
        panel="loops",
    )
