"""The looped transformer's loss computed from tokens, and its candidate closed forms.

Expectations over the context are sums over a product rule, exact for these polynomials; those over
w* and x_q are taken by the bilinear form that tokens reveal, w* and x_q being basis vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

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
"""Triples (d, n, L), small enough for the quadrature rule."""
Form = Callable[["Case", Tensor], Tensor]
Prior = Callable[[Tensor], Tensor]


class Case(NamedTuple):
    """One case: Σ*, the number of examples, and A and u of every layer."""

    star: Tensor
    n: int
    A: Tensor
    u: Tensor
    description: str = ""

    @property
    def size(self) -> tuple[int, ...]:
        L, d = self.u.shape
        return d, L, self.n, 0 if self.description else 1

    def context(self) -> tuple[Tensor, Tensor]:
        """Examples in rows at every point of the quadrature rule, and the rule's weights."""
        L, d = self.u.shape
        points, mass = _rule(self.n * d, 4 * L + 2)
        root = torch.linalg.cholesky(self.star)
        return points.reshape(-1, self.n, d) @ root.mT, mass

    def add(self, trial: Equality, left: Tensor, right: Tensor) -> None:
        L, d = self.u.shape
        about = self.description or f"d = {d}, n = {self.n}, L = {L}"
        about += f": {float(left):.6g} where {float(right):.6g} is stated"
        trial.add(left, right, size=self.size, about=about)


@cache
def _rule(variables: int, degree: int) -> tuple[Tensor, Tensor]:
    return product_rule(variables, degree)


def draw_case(generator: torch.Generator, k: int, *, shared: bool, flat: bool = False) -> Case:
    """Draw a case: Σ* dense; A dense, positive definite if the layers share it; u = 0 if flat."""
    d, n, L = SIZES[k % len(SIZES)]
    star = draw_covariance(generator, d, 20.0)
    A, u = draw_normal(generator, L, d, d), draw_normal(generator, L, d)
    if shared:
        A, u = (A @ A.mT)[:1].expand(L, d, d), u[:1].expand(L, d)
    A = A / (torch.linalg.matrix_norm(A, 2).max() * torch.linalg.matrix_norm(star, 2))
    return Case(star, n, A * (0.5 + draw_integer(generator, 0, 3)), 0 * u if flat else u)


def smallest_cases(flat: bool) -> list[Case]:
    """Small cases that a reader can check by hand."""
    one, eye = torch.ones(1, 1, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    zero = torch.zeros(1, 2, dtype=torch.float64)
    corner = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))[None]
    told = "d = 2, n = 3, L = 1, Σ* = I, A = diag(1, 0), u = 0"
    cases = [Case(eye, 3, corner, zero, told)]
    if not flat:
        told = "d = 1, n = 2, L = 1, Σ* = A = u = 1"
        cases += [Case(one, 2, one[None], one, told)]
    return cases


def measure_loss(case: Case) -> Tensor:
    """The loss L(A, u) of section 3.5: layers (3) with (11) on tokens, E[(TF − y_q)²]."""
    X, mass = case.context()
    d = len(case.star)
    eye = torch.eye(d, dtype=torch.float64)
    shape = (d + 1, d, len(X), d)
    weights = torch.cat([0 * eye[:1], eye])[:, None, None, :].expand(shape)
    queries = eye[None, :, None, :].expand(shape)
    Z = build_tokens(X.expand(d + 1, d, *X.shape), weights, queries)
    for A, u in zip(case.A, case.u, strict=True):
        P = torch.zeros(d + 1, d + 1, dtype=torch.float64)
        P[d] = torch.cat([u, u.new_ones(1)])
        Z = Z - attention(Z, P, torch.nn.functional.pad(A, (0, 1, 0, 1))) / case.n
    error = -Z[..., d, -1] - (weights * queries).sum(-1)
    row = error[0].movedim(0, -1)  # at w* = 0: points, queries
    R = (error[1:] - error[:1]).permute(2, 0, 1)
    inverse = torch.linalg.inv(case.star)
    first = torch.einsum("pij,jk,plk,il->p", R, case.star, R, inverse)
    return (first + torch.einsum("pi,ij,pj->p", row, case.star, row)) @ mass


def products(case: Case, S: Tensor) -> tuple[Tensor, Tensor]:
    """∏(I − ΣA_i) and Σ_i u_iᵀΣA_i ∏_{j>i}(I − ΣA_j), from left to right."""
    eye = torch.eye(S.shape[-1], dtype=S.dtype)
    R, row = eye, torch.zeros_like(S[:, :1])
    for A, u in zip(case.A, case.u, strict=True):
        # The sum's earlier terms get the new factor, its last one has none.
        R, row = R @ (eye - S @ A), row @ (eye - S @ A) + (u @ S @ A)[:, None]
    return R.expand_as(S), row


def closed_form(outer: str, swapped: bool = False) -> Form:
    """The form E‖O^{−½} ∏ O^½‖² + E‖row O^½‖² with O the sample's Σ or the law's Σ*."""

    def form(case: Case, S: Tensor) -> Tensor:
        R, row = products(case, S)
        eye = torch.eye(S.shape[-1], dtype=S.dtype)
        if outer == "sample":
            # Σ⁻¹ ∏(I − ΣA_i) Σ = ∏(I − A_iΣ): a polynomial, also where Σ is singular.
            turned = eye
            for A in case.A:
                turned = turned @ (eye - A @ S)
            first, outside = torch.einsum("pij,pij->p", turned.expand_as(S), R), S
        else:
            outside = torch.linalg.inv(case.star) if swapped else case.star
            first = torch.einsum("pij,jk,plk,il->p", R, outside, R, torch.linalg.inv(outside))
        return first + (row @ outside @ row.mT).squeeze(-1).squeeze(-1)

    return form


def trace_form(case: Case, S: Tensor, power: int = 2) -> Tensor:
    """The form tr((I − A^½ΣA^½)^{2L}) + ‖Σ_i uᵀΣA(I − ΣA)^{L−1−i} Σ^½‖².

    One A for all layers, positive definite.
    """
    values, U = torch.linalg.eigh(case.A[0])
    root = U * values.clamp(min=0).sqrt() @ U.mT
    inner = torch.eye(len(root), dtype=S.dtype) - root @ S @ root
    first = torch.linalg.matrix_power(inner, power * len(case.u)).diagonal(dim1=-2, dim2=-1)
    _, row = products(case, S)
    return first.sum(-1) + (row @ S @ row.mT).squeeze(-1).squeeze(-1)


def compare_forms(cases: list[Case], forms: list[tuple[Equality, Form]]) -> None:
    """Add every form to its trial, against the transformer's loss, on every case."""
    for case in cases:
        loss = measure_loss(case)
        X, mass = case.context()
        for trial, form in forms:
            case.add(trial, loss, form(case, X.mT @ X / case.n) @ mass)


def describe_sizes() -> dict[str, float | int | str | bool | None]:
    """The largest sizes tried, as numbers of the evidence."""
    d, n, loops = (max(size[k] for size in SIZES) for k in range(3))
    return {"largest d": d, "largest n": n, "most layers": loops}


CORRECTED_FORM = closed_form("law")
"""The corrected loss, with Σ* outside, where w* and x_q bring it."""
