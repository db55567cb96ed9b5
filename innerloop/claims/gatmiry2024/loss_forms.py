"""Stacks of linear attention, their loss on tokens, and closed forms that are said to equal it.

Loss       the layers of (11) run on tokens, w* and x_q being basis vectors, which reveal the error
           as a bilinear form; expectations over the context by a rule that is exact for polynomials
Forms      functions of the sample covariance Σ = (1/n) XXᵀ at every point of that rule
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.prompts import (
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
    form_layer,
    run_layers,
)
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
