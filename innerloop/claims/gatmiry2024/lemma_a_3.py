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

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.prompts import (
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
    form_layer,
    run_layers,
)
from innerloop.claims.trials import Equality, Inequality, check_rows
from innerloop.theory.gaussian import product_rule
from innerloop.theory.looped import LoopedLoss

SIZES = ((1, 2, 1), (1, 2, 2), (2, 3, 1), (1, 3, 3), (2, 2, 2))
"""Triples (d, n, L), small enough for the quadrature rule; the printed forms are tried where
n > d, the corrected ones everywhere."""
Form = Callable[["Stack", Tensor], Tensor]
Rows = list[dict[str, Any]]
"""The case, the loss that the layers have on tokens, and the value of each form, by name."""


class Stack(NamedTuple):
    """Layers and the law of their prompts: Σ*, the number of examples, A and u of every layer."""

    star: Tensor
    n: int
    A: Tensor
    u: Tensor
    note: str = ""

    @property
    def case(self) -> Case:
        L, d = self.u.shape
        return Case(d=d, L=L, n=self.n, note=self.note)

    @property
    def is_symmetric(self) -> bool:
        """Whether A^½ is defined in every layer."""
        symmetric = torch.allclose(self.A, self.A.mT, rtol=1e-12)
        return symmetric and bool((torch.linalg.eigvalsh(self.A) > -1e-12).all())

    def context(self) -> tuple[Tensor, Tensor]:
        """Examples in rows at every point of the quadrature rule, and the rule's weights."""
        L, d = self.u.shape
        points, mass = _rule(self.n * d, 4 * L + 2)
        root = torch.linalg.cholesky(self.star)
        return points.reshape(-1, self.n, d) @ root.mT, mass


@cache
def _rule(variables: int, degree: int) -> tuple[Tensor, Tensor]:
    return product_rule(variables, degree)


def draw_stack(generator: torch.Generator, k: int, *, shared: bool, flat: bool = False) -> Stack:
    """Draw a stack: Σ* dense; A dense, positive definite if the layers share it; u = 0 if flat."""
    d, n, L = SIZES[k % len(SIZES)]
    star = draw_covariance(generator, d, 20.0)
    A, u = draw_normal(generator, L, d, d), draw_normal(generator, L, d)
    if shared:
        A, u = (A @ A.mT)[:1].expand(L, d, d), u[:1].expand(L, d)
    A = A / (torch.linalg.matrix_norm(A, 2).max() * torch.linalg.matrix_norm(star, 2))
    return Stack(star, n, A * (0.5 + draw_integer(generator, 0, 3)), 0 * u if flat else u)


def list_stacks(*, flat: bool) -> list[Stack]:
    """List small stacks that a reader can check by hand, and the source's hard instances."""
    one, eye = torch.ones(1, 1, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    stacks = []
    for entries in ((2, 1), (1, 0)):  # one that has an inverse is shown
        A = torch.diag(torch.tensor(entries, dtype=torch.float64))[None]
        note = f"$Σ* = I$, $A = diag{entries}$, $u = 0$"
        stacks.append(Stack(eye, 3, A, 0 * eye[:1], note))
    if not flat:
        stacks.append(Stack(one, 2, one[None], one, "$Σ* = A = u = 1$"))
    for name, build in HARD_MATRICES.items():
        u = eye[:1].expand(2, 2)
        stacks.append(Stack(eye, 2, build(2).expand(2, 2, 2), 0 * u if flat else u, name))
    return stacks


def measure_loss(stack: Stack) -> Tensor:
    """The loss L(A, u) of section 3.5: layers (3) with (11) on tokens, E[(TF − y_q)²]."""
    X, mass = stack.context()
    d = len(stack.star)
    eye = torch.eye(d, dtype=torch.float64)
    shape = (d + 1, d, len(X), d)
    weights = torch.cat([0 * eye[:1], eye])[:, None, None, :].expand(shape)
    queries = eye[None, :, None, :].expand(shape)
    Z = build_tokens(X.expand(d + 1, d, *X.shape), weights, queries)
    Z = run_layers(Z, map(form_layer, stack.A, stack.u), sign=-1.0)[-1]
    error = -Z[..., d, -1] - (weights * queries).sum(-1)
    row = error[0].movedim(0, -1)  # at w* = 0: points, queries
    R = (error[1:] - error[:1]).permute(2, 0, 1)
    return (outer_norm(R, stack.star) + row_norm(row[:, None], stack.star)) @ mass


def outer_norm(R: Tensor, star: Tensor) -> Tensor:
    """‖Σ*^{−½} R Σ*^½‖² of every point."""
    return torch.einsum("pij,jk,plk,il->p", R, star, R, torch.linalg.inv(star))


def row_norm(row: Tensor, S: Tensor) -> Tensor:
    """‖r S^½‖² of a row r for every point."""
    return (row @ S @ row.mT).squeeze(-1).squeeze(-1)


def products(stack: Stack, S: Tensor) -> tuple[Tensor, Tensor]:
    """∏(I − ΣA_i) and Σ_i u_iᵀΣA_i ∏_{j>i}(I − ΣA_j), from left to right."""
    eye = torch.eye(S.shape[-1], dtype=S.dtype)
    R, row = eye, torch.zeros_like(S[:, :1])
    for A, u in zip(stack.A, stack.u, strict=True):
        # The sum's earlier terms get the new factor, its last one has none.
        R, row = R @ (eye - S @ A), row @ (eye - S @ A) + (u @ S @ A)[:, None]
    return R.expand_as(S), row


def corrected_form(stack: Stack, S: Tensor) -> Tensor:
    """‖Σ*^{−½} ∏ Σ*^½‖² + ‖row Σ*^½‖²: Σ* outside, where w* and x_q bring it."""
    R, row = products(stack, S)
    return outer_norm(R, stack.star) + row_norm(row, stack.star)


def sample_form(stack: Stack, S: Tensor) -> Tensor:
    """‖Σ^{−½} ∏ Σ^½‖² + ‖row Σ^½‖², with the sample's Σ outside."""
    (R, row), eye = products(stack, S), torch.eye(S.shape[-1], dtype=S.dtype)
    # Σ⁻¹ ∏(I − ΣA_i) Σ = ∏(I − A_iΣ): a polynomial, also where Σ is singular.
    turned = eye
    for A in stack.A:
        turned = turned @ (eye - A @ S)
    return (turned * R).sum((-2, -1)) + row_norm(row, S)


def step_form(stack: Stack, S: Tensor) -> Tensor:
    """E over x_q of x_qᵀ(∏)²x_q, with the term in u."""
    R, row = products(stack, S)
    return torch.einsum("pij,ji->p", R @ R, stack.star) + row_norm(row, stack.star)


def trace_form(stack: Stack, S: Tensor) -> Tensor:
    """The form tr((I − A^½ΣA^½)^{2L}) + ‖Σ_i uᵀΣA(I − ΣA)^{L−1−i} Σ^½‖².

    One A for all layers, positive definite.
    """
    values, U = torch.linalg.eigh(stack.A[0])
    root = U * values.clamp(min=0).sqrt() @ U.mT
    inner = torch.eye(len(root), dtype=S.dtype) - root @ S @ root
    first = torch.linalg.matrix_power(inner, 2 * len(stack.u)).diagonal(dim1=-2, dim2=-1)
    _, row = products(stack, S)
    return first.sum(-1) + row_norm(row, S)


def measure_forms(stacks: Iterable[Stack], forms: Mapping[str, Form]) -> Rows:
    """Measure the loss of every stack, and the forms.

    The printed form where its hypotheses hold: n > d, and A^½ is defined where it occurs.
    """
    rows = []
    for stack in stacks:
        X, mass = stack.context()
        row: dict[str, Any] = {"case": stack.case, "loss": float(measure_loss(stack))}
        for name, form in forms.items():
            allowed = stack.n > len(stack.star) and (form is not trace_form or stack.is_symmetric)
            if allowed or name != "printed":
                row[name] = float(form(stack, X.mT @ X / stack.n) @ mass)
        rows.append(row)
    return rows


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
        ],
    )


@claim(
    "gatmiry2024.lemma-A.3",
    "The loss of stacked layers with their own $A$ and $u$ is the sum of two expected "
    "squared norms over the sample covariance.",
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
    "The loss of a looped transformer is an expected trace of a power of the sample "
    "covariance between roots of $A$, and a term in $u$.",
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
