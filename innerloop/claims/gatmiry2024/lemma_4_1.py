"""Lemma 4.1: the loss of a looped transformer at u = 0, in closed form.

Printed    L(A, 0) = E tr((I − A^½ΣA^½)^{2L}), Σ = (1/n) Σᵢ xᵢxᵢᵀ
Tested     as corollary-A.4, with u = 0
Corrected  L(A, 0) = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L), any A and n (lemma-A.3 has the proof)
Beyond     the trace is at most the loss, and equal if and only if A = cΣ*⁻¹. With B = Σ*^½AΣ*^½ and
           S the whitened sample the loss is E‖M‖_F² and the trace E tr(M²), M = (I − SB)^L;
           ‖M‖_F² − tr(M²) = ‖M − Mᵀ‖_F²/2. If M is symmetric for almost every S, so is its part
           of first order in S, −L SB: B commutes with every S and is a multiple of I. At L = 1
           the difference is (d tr(B²) − (tr B)²)/n
Note       the lemma carries the landscape of all later statements: where its two sides part, they
           are tested with both, the transformer's loss (section 3.5) and this trace
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
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
from innerloop.claims.trials import Inequality
from innerloop.theory.looped import LoopedLoss


def judge_loss(rows: Rows) -> Evidence:
    below = Inequality("$E tr((I − A^½ΣA^½)^{2L}) ≤ L(A, 0)$", rounding=1e-9)
    compared = [row for row in rows if "printed" in row]
    for row in compared:
        below.add(row["printed"], row["loss"], row["case"])
    aligned = "$L(A, 0) = E tr((I − A^½ΣA^½)^{2L})$ for $A = cΣ*⁻¹$"
    return Evidence(
        parts=[
            Part(
                printed=check_form(rows, "printed", "$L(A, 0) = E tr((I − A^½ΣA^½)^{2L})$"),
                corrected=check_form(
                    rows, "corrected", "$L(A, 0) = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L)$"
                ),
            )
        ],
        beyond=[check_form(rows, "aligned", aligned), below.check()],
        numbers={
            "largest share of the loss that the trace lacks": max(
                1 - row["printed"] / row["loss"] for row in compared
            )
        },
        figures=[_draw_figure()],
    )


@claim(
    "gatmiry2024.lemma-4.1",
    "At $u = 0$ the loss of a looped transformer is the expected trace of $(I − A^½ΣA^½)^{2L}$.",
    where="Section 4, Lemma 4.1",
    kind="equality",
    hypotheses={"$A$ positive semidefinite": "$A^½$, in the lemma", "$n > d$": "Section 3.2"},
    quick={"trials": 50},
    full={"trials": 1000},
    tiny={"trials": 5},
    judge=judge_loss,
    falsified=FALSIFIED,
)
def lemma_4_1(generator: torch.Generator, *, trials: int) -> Rows:
    drawn = [draw_stack(generator, k, shared=True, flat=True) for k in range(trials)]
    stacks = [*list_stacks(flat=True), *drawn]
    rows = measure_forms(stacks, {"printed": trace_form, "corrected": CORRECTED_FORM})
    inverses = [torch.linalg.inv(stack.star) / stack.star.norm() for stack in drawn]
    pairs = zip(drawn, inverses, strict=True)
    aligned = [stack._replace(A=A * stack.A.norm(dim=(-2, -1), keepdim=True)) for stack, A in pairs]
    return rows + measure_forms(aligned, {"aligned": trace_form})


def _draw_figure() -> Figure:
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
    return draw_lines(
        "The loss and its printed form, Σ* = I, d = 2, n = 8, A = diag(1 + t, 1 − t)",
        rows,
        "t: t, 0 where A is a multiple of the identity",
        "value: expected squared error",
        by="form",
        panel="loops",
    )
