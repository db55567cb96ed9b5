"""Layers of linear attention with a row u in P: run on tokens, and their candidate closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.prompts import build_tokens, draw_integer, draw_normal
from innerloop.claims.trials import Equality

LARGEST_D, LARGEST_N, LAYERS = 4, 10, 6
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Stack(NamedTuple):
    """A stack of layers: examples in rows, true weights, a query, and A and u of every layer."""

    X: Tensor
    star: Tensor
    query: Tensor
    A: Tensor
    u: Tensor
    plain: bool = False

    @classmethod
    def draw(cls, generator: torch.Generator, d: int, kind: int) -> Stack:
        """Draw a stack. Kind 0: parameters per layer; kind 1: shared by all; kind 2: u = 0."""
        n, layers = draw_integer(generator, 1, LARGEST_N), draw_integer(generator, 1, LAYERS)
        X, A = draw_normal(generator, n, d), draw_normal(generator, layers, d, d)
        u = draw_normal(generator, layers, d)
        size = torch.linalg.matrix_norm(A, 2).max() * torch.linalg.matrix_norm(X.mT @ X / n, 2)
        A = 0.5 * A / size
        if kind == 1:
            A, u = A[:1].expand_as(A), u[:1].expand_as(u)
        u = torch.zeros_like(u) if kind == 2 else u
        return cls(X, draw_normal(generator, d), draw_normal(generator, d), A, u, kind == 2)

    @classmethod
    def smallest(cls) -> Stack:
        one = torch.ones(1, dtype=torch.float64)
        return cls(torch.ones(2, 1, dtype=torch.float64), 0 * one, one, one[None, None], one[None])

    def add(self, trial: Equality, left: Tensor, right: Tensor, t: int) -> None:
        n, d = self.X.shape
        about = f"d = {d}, n = {n}, t = {t}"
        ones = bool((self.X == 1).all())
        if ones:
            about = f"d = 1, n = 2, t = {t}, w* = 0, all of x, x_q, A and u are 1"
            about += f", {left.tolist()} where {right.tolist()} is stated"
        trial.add(left, right, size=(0, 0, t) if ones else (d, n, t), about=about)


class Form(NamedTuple):
    """The row w*ᵀ ∏ (I − ΣA) + sign · Σ_i uᵀΣA ∏ (I − ΣA), applied to X in (12), to x_q in (13)."""

    sign: float
    left_to_right: bool = True
    averaged: bool = True

    def row(self, case: Stack, t: int) -> Tensor:
        n, d = case.X.shape
        S = case.X.mT @ case.X / (n if self.averaged else 1)
        identity = torch.eye(d, dtype=torch.float64)
        factors = [identity - S @ A for A in case.A[:t]]
        row = case.star @ self._product(factors, identity)
        for i in range(t):
            later = self._product(factors[i + 1 :], identity)
            row = row + self.sign * case.u[i] @ S @ case.A[i] @ later
        return row

    def _product(self, factors: list[Tensor], identity: Tensor) -> Tensor:
        for factor in factors:
            identity = identity @ factor if self.left_to_right else factor @ identity
        return identity


def run_layers(case: Stack, attend: Attention) -> list[Tensor]:
    """Run the layers; the label row before every layer and after the last."""
    n, d = case.X.shape
    Z = build_tokens(case.X, case.star, case.query)
    rows = [Z[d]]
    for A, u in zip(case.A, case.u, strict=True):
        P = torch.zeros(d + 1, d + 1, dtype=torch.float64)
        P[d] = torch.cat([u, torch.ones(1, dtype=torch.float64)])
        Z = Z - attend(Z, P, torch.nn.functional.pad(A, (0, 1, 0, 1))) / n
        rows.append(Z[d])
    return rows
