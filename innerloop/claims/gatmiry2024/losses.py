"""The looped transformer's loss computed from tokens, and its candidate closed forms.

Expectations over the context are sums over a product rule, exact for these polynomials; those over
w* and x_q are taken by the bilinear form that tokens reveal, w* and x_q being basis vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check
from innerloop.claims.falsifying import change_column
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.prompts import (
    attention,
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
)
from innerloop.claims.trials import Equality
from innerloop.theory.gaussian import product_rule

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
    corner = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))[None]
    stacks = [Stack(eye, 3, corner, 0 * eye[:1], "$Σ* = I$, $A = diag(1, 0)$, $u = 0$")]
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
    for A, u in zip(stack.A, stack.u, strict=True):
        P = torch.zeros(d + 1, d + 1, dtype=torch.float64)
        P[d] = torch.cat([u, u.new_ones(1)])
        Z = Z - attention(Z, P, torch.nn.functional.pad(A, (0, 1, 0, 1))) / stack.n
    error = -Z[..., d, -1] - (weights * queries).sum(-1)
    row = error[0].movedim(0, -1)  # at w* = 0: points, queries
    R = (error[1:] - error[:1]).permute(2, 0, 1)
    inverse = torch.linalg.inv(stack.star)
    first = torch.einsum("pij,jk,plk,il->p", R, stack.star, R, inverse)
    return (first + torch.einsum("pi,ij,pj->p", row, stack.star, row)) @ mass


def products(stack: Stack, S: Tensor) -> tuple[Tensor, Tensor]:
    """∏(I − ΣA_i) and Σ_i u_iᵀΣA_i ∏_{j>i}(I − ΣA_j), from left to right."""
    eye = torch.eye(S.shape[-1], dtype=S.dtype)
    R, row = eye, torch.zeros_like(S[:, :1])
    for A, u in zip(stack.A, stack.u, strict=True):
        # The sum's earlier terms get the new factor, its last one has none.
        R, row = R @ (eye - S @ A), row @ (eye - S @ A) + (u @ S @ A)[:, None]
    return R.expand_as(S), row


def closed_form(outer: str) -> Form:
    """The form E‖O^{−½} ∏ O^½‖² + E‖row O^½‖² with O the sample's Σ or the law's Σ*."""

    def form(stack: Stack, S: Tensor) -> Tensor:
        R, row = products(stack, S)
        eye = torch.eye(S.shape[-1], dtype=S.dtype)
        if outer == "sample":
            # Σ⁻¹ ∏(I − ΣA_i) Σ = ∏(I − A_iΣ): a polynomial, also where Σ is singular.
            turned = eye
            for A in stack.A:
                turned = turned @ (eye - A @ S)
            first, outside = torch.einsum("pij,pij->p", turned.expand_as(S), R), S
        else:
            outside = stack.star
            first = torch.einsum("pij,jk,plk,il->p", R, outside, R, torch.linalg.inv(outside))
        return first + (row @ outside @ row.mT).squeeze(-1).squeeze(-1)

    return form


def trace_form(stack: Stack, S: Tensor) -> Tensor:
    """The form tr((I − A^½ΣA^½)^{2L}) + ‖Σ_i uᵀΣA(I − ΣA)^{L−1−i} Σ^½‖².

    One A for all layers, positive definite.
    """
    values, U = torch.linalg.eigh(stack.A[0])
    root = U * values.clamp(min=0).sqrt() @ U.mT
    inner = torch.eye(len(root), dtype=S.dtype) - root @ S @ root
    first = torch.linalg.matrix_power(inner, 2 * len(stack.u)).diagonal(dim1=-2, dim2=-1)
    _, row = products(stack, S)
    return first.sum(-1) + (row @ S @ row.mT).squeeze(-1).squeeze(-1)


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
    trial = Equality(statement, tolerance=1e-8)
    for row in (row for row in rows if name in row):
        trial.add(row["loss"], row[name], row["case"])
    return trial.check()


FALSIFIED = {
    "losses a hundred-thousandth higher": change_column("loss", lambda loss: 1.00001 * loss),
    "losses a thousandth lower": change_column("loss", lambda loss: 0.999 * loss),
}


CORRECTED_FORM = closed_form("law")
"""The corrected loss, with Σ* outside, where w* and x_q bring it."""
