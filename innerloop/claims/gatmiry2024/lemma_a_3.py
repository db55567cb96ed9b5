"""Lemma A.3, Corollary A.4 and Lemma 4.1: the loss of a looped transformer, in closed form.

Printed    (A.3) layers with their own A and u: L(A, u) = E‖Σ^{−½}∏(I − ΣA^(i))Σ^½‖² +
           E‖Σ_i d_iᵀΣA^(i)∏_{j>i}(I − ΣA^(j))Σ^½‖², Σ = (1/n) XXᵀ; (A.4) one A ≽ 0 for all loops:
           E tr((I − A^½ΣA^½)^{2L}) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ^½‖²; (4.1) its first term at u = 0
Tested     the layers of (11) run on tokens, w* and x_q being basis vectors, which reveal the error
           as a bilinear form; expectations over the context by a rule that is exact for
           polynomials. A^(i) dense and not symmetric (A.3), or positive semidefinite, Σ* dense, up
           to 3 layers, d ≤ 2; the source's hard matrices; the corrected forms on all A
Reading    Σ is the sample's everywhere, as (12) has it and as Corollary A.4 goes on with it, where
           Σ^{−½}ΣAΣ^½ becomes Σ^½AΣ^½; the norm is Frobenius's
Wrong      what stands outside comes from w* and x_q, whose law has Σ*, not the sample's Σ. The
           trace of A.4 is the first term where A is a multiple of Σ*⁻¹ and only there; E[rΣrᵀ] is
           not E[rΣ*rᵀ] at d = 1 already
Corrected  E‖Σ*^{−½}∏Σ*^½‖² + E‖Σ_i … Σ*^½‖², any A^(i) and n; at ∏ = (I − ΣA)^L the first term is
           E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L)
Proof      the error is w*ᵀRx_q + rx_q up to sign, R = ∏ and r = Σ_i … functions of X. w* has mean 0
           and is independent of the rest: E[(w*ᵀRx_q)²] + E[(rx_q)²], and with E[w*w*ᵀ] = Σ*⁻¹,
           E[x_qx_qᵀ] = Σ*: E tr(Σ*⁻¹RΣ*Rᵀ) + E[rΣ*rᵀ]
Beyond     the trace of 4.1 is at most the loss, and equal if and only if A = cΣ*⁻¹. With
           B = Σ*^½AΣ*^½ and S the whitened sample the loss is E‖M‖_F² and the trace E tr(M²),
           M = (I − SB)^L; ‖M‖_F² − tr(M²) = ‖M − Mᵀ‖_F²/2. If M is symmetric for almost every S, so
           is its part of first order in S, −L SB: B commutes with every S and is a multiple of I.
           At L = 1 the difference is (d tr(B²) − (tr B)²)/n
Note       Lemma 4.1 carries the landscape of all later statements: where its two sides part, they
           are tested with both, the transformer's loss (section 3.5) and this trace
"""

from __future__ import annotations

from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.gatmiry2024.loss_forms import (
    Rows,
    corrected_form,
    draw_stack,
    list_stacks,
    measure_forms,
    sample_form,
    step_form,
    trace_form,
)
from innerloop.claims.trials import Equality, Inequality, check_rows
from innerloop.theory.looped import LoopedLoss


def check_form(rows: Rows, name: str, statement: str) -> Check:
    """Check that one of the forms is the loss."""
    values = ((row["case"], row["loss"], row[name]) for row in rows if name in row)
    return check_rows(Equality(statement, tolerance=1e-8), values)


PRESETS: dict[str, Any] = {
    "kind": "equality",
    "quick": {"trials": 50},
    "full": {"trials": 1000},
    "tiny": {"trials": 4},
    "falsified": {
        "losses a hundred-thousandth higher": change_column("loss", lambda loss: 1.00001 * loss),
        "losses a thousandth lower": change_column("loss", lambda loss: 0.999 * loss),
    },
}


def judge_form(rows: Rows, printed: str, corrected: str, reading: str = "") -> Part:
    return Part(
        printed=check_form(rows, "printed", printed),
        corrected=check_form(rows, "corrected", corrected),
        reading=reading,
    )


def judge_layers(rows: Rows) -> Evidence:
    statement = "$L = E‖Σ^{−½}∏Σ^½‖² + E‖∑_i d_iᵀΣA^(i)∏Σ^½‖²$, $Σ$ the sample's"
    mended = "$L = E‖Σ*^{−½}∏Σ*^½‖² + E‖∑_i d_iᵀΣA^(i)∏Σ*^½‖²$"
    reading = (
        "$Σ$ is the sample's everywhere: (12) has it, and Corollary A.4 makes "
        "$Σ^½AΣ^½$ of $Σ^{−½}ΣAΣ^½$"
    )
    return Evidence(
        parts=[judge_form(rows, statement, mended, reading)],
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
            misprint(
                "proof of Lemma A.3, the expectation over $w*$",
                "$∑_{i=0}^{t−1} d_iᵀΣA^(i)∏$",
                "the sum runs to $L − 1$, as in the line after it",
                "there is no $t$ in the lemma",
            ),
        ],
    )


@claim(
    "gatmiry2024.lemma-A.3",
    "The loss of stacked layers with their own $A$ and $u$ is $E‖Σ^{−½}∏(I − ΣA^(i))Σ^½‖²$ plus an "
    "expected squared norm in $u$, with the sample's $Σ$ outside as inside.",
    where="Appendix A.1, Lemma A.3 and its proof",
    hypotheses={"$n > d$": "Section 3.2", "$w* ~ N(0, Σ*⁻¹)$, $x_q ~ N(0, Σ*)$": "Section 3.2"},
    judge=judge_layers,
    **PRESETS,
)
def lemma_a_3(generator: torch.Generator, *, trials: int) -> Rows:
    stacks = list_stacks(flat=False)
    stacks += [draw_stack(generator, k, shared=False) for k in range(trials)]
    forms = {"printed": sample_form, "corrected": corrected_form, "step": step_form}
    return measure_forms(stacks, forms)


def judge_loops(rows: Rows) -> Evidence:
    row = "E‖∑_i uᵀΣA(I − ΣA)^{L−1−i}"
    statement = f"$L = E tr((I − A^½ΣA^½)^{{2L}}) + {row}Σ^½‖²$"
    mended = f"$L = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L) + {row}Σ*^½‖²$"
    return Evidence(parts=[judge_form(rows, statement, mended)])


@claim(
    "gatmiry2024.corollary-A.4",
    "The loss of a looped transformer is $E tr((I − A^½ΣA^½)^{2L})$ plus "
    "$E‖∑_i uᵀΣA(I − ΣA)^{L−1−i}Σ^½‖²$, with the sample's $Σ$ outside as inside.",
    where="Appendix A.1, Corollary A.4",
    hypotheses={"$A$ positive semidefinite": "$A^½$, in the corollary", "$n > d$": "Section 3.2"},
    judge=judge_loops,
    **PRESETS,
)
def corollary_a_4(generator: torch.Generator, *, trials: int) -> Rows:
    stacks = list_stacks(flat=False)
    stacks += [draw_stack(generator, k, shared=True) for k in range(trials)]
    return measure_forms(stacks, {"printed": trace_form, "corrected": corrected_form})


def judge_trace(rows: Rows) -> Evidence:
    below = Inequality("$E tr((I − A^½ΣA^½)^{2L}) ≤ L(A, 0)$", rounding=1e-9)
    compared = [row for row in rows if "printed" in row]
    for row in compared:
        below.add(row["printed"], row["loss"], row["case"])
    statement = "$L(A, 0) = E tr((I − A^½ΣA^½)^{2L})$"
    mended = "$L(A, 0) = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AᵀΣ)^L)$"
    return Evidence(
        parts=[judge_form(rows, statement, mended)],
        beyond=[check_form(rows, "aligned", f"{statement} for $A = cΣ*⁻¹$"), below.check()],
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
    hypotheses={"$A$ positive semidefinite": "$A^½$, in the lemma", "$n > d$": "Section 3.2"},
    judge=judge_trace,
    **PRESETS,
)
def lemma_4_1(generator: torch.Generator, *, trials: int) -> Rows:
    drawn = [draw_stack(generator, k, shared=True, flat=True) for k in range(trials)]
    stacks = [*list_stacks(flat=True), *drawn]
    rows = measure_forms(stacks, {"printed": trace_form, "corrected": corrected_form})
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
