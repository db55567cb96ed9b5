"""The transformer of Section 3 and Appendix C as printed; a token is a column of the stream.

Rows of a column: x (1 … d), y (d+1), β (d+2 … 2d+1), the flag of odd tokens (2d+2).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Head(NamedTuple):
    """The matrices Q, K, V of one head, D×D each."""

    query: Tensor
    key: Tensor
    value: Tensor


class Units(NamedTuple):
    """The parameters W₁, W₂ and b of an MLP."""

    inner: Tensor
    outer: Tensor
    bias: Tensor


def soft_threshold(x: Tensor, theta: Tensor | float) -> Tensor:
    """Soft threshold sign(x) max(0, |x| − θ), entry by entry."""
    return x.sign() * (x.abs() - theta).clamp_min(0.0)


def take_step(
    M: Tensor, X: Tensor, y: Tensor, beta: Tensor, theta: float, inner: Tensor | None = None
) -> Tensor:
    """One step (4.4) of LISTA-VM on n examples: S_θ(β − M Xᵀ(X β − y)/(2n+1)).

    `inner`, if given, stands for β in the residual.
    """
    residual = X @ (beta if inner is None else inner) - y
    return soft_threshold(beta - M @ X.mT @ residual / (2 * len(X) + 1), theta)


def attend(H: Tensor, heads: list[Head]) -> Tensor:
    """Attention by Definition 3.1 in matrix form: H + Σ_m (V H) mask(σ((K H)ᵀ(Q H)))."""
    tokens = H.shape[-1]
    mask = torch.ones(tokens, tokens, dtype=H.dtype).triu() / torch.arange(1.0, tokens + 1).to(H)
    out = H
    for head in heads:
        scores = ((head.key @ H).mT @ (head.query @ H)).relu()
        out = out + (head.value @ H) @ (mask * scores)
    return out


def apply_mlp(H: Tensor, units: Units) -> Tensor:
    """MLP by Definition 3.2: h + W₂ σ(W₁ h + b)."""
    return H + units.outer @ (units.inner @ H + units.bias[:, None]).relu()


def beta_projection(d: int) -> Tensor:
    """The matrix W_{1,sub} of (C.2): the identity on β, 0 elsewhere."""
    sub = torch.zeros(2 * d + 2, 2 * d + 2, dtype=torch.float64)
    sub[d + 1 : 2 * d + 1, d + 1 : 2 * d + 1] = torch.eye(d, dtype=torch.float64)
    return sub


def printed_units(d: int, theta: float, last: float) -> Units:
    """The MLP (C.2), with `last`·θ for the last bias: 1 as printed, −1 as it must be."""
    sub, one = beta_projection(d), torch.eye(2 * d + 2, dtype=torch.float64)
    bias = torch.zeros(8 * d + 8, dtype=torch.float64)
    bias[5 * d + 5 : 6 * d + 5] = -theta
    bias[7 * d + 7 : 8 * d + 7] = last * theta
    return Units(torch.cat([sub, -sub, sub, -sub]), torch.cat([-one, one, one, -one], dim=1), bias)


def printed_heads(d: int, matrix: Tensor, bound: float) -> list[Head]:
    """The heads (C.1), parameters of Appendix C.2: +1, −1, +2, −2; `matrix` is γ M^V."""
    x, beta, D = slice(0, d), slice(d + 1, 2 * d + 1), 2 * d + 2
    one, found = torch.eye(d, dtype=torch.float64), []
    for sign in (1.0, -1.0):
        query, key, value = (torch.zeros(D, D, dtype=torch.float64) for _ in range(3))
        query[beta, beta], query[D - 1, D - 1] = -sign * one, -bound
        key[beta, x], key[D - 1, D - 1] = one, 1.0
        value[beta, x] = sign * matrix
        found.append(Head(query, key, value))
    for sign in (1.0, -1.0):
        query, key, value = (torch.zeros(D, D, dtype=torch.float64) for _ in range(3))
        query[d, D - 1], key[d, d] = sign, 1.0
        value[beta, x] = sign * matrix
        found.append(Head(query, key, value))
    return found


def printed_prompt(X: Tensor, y: Tensor, query: Tensor) -> Tensor:
    """The prompt (4.2) with β = 0: x₁, (x₁, y₁), x₂, …, the query."""
    n, d = X.shape
    H = torch.zeros(2 * d + 2, 2 * n + 1, dtype=X.dtype)
    H[:d, 0:-1:2], H[:d, 1::2], H[:d, -1] = X.mT, X.mT, query
    H[d, 1::2], H[-1, 0::2] = y, 1.0
    return H


def run_layer(H: Tensor, matrix: Tensor, theta: float, bound: float, last: float = -1.0) -> Tensor:
    """One layer of the weights (C.1) and (C.2), with `last`·θ for the last bias."""
    d = len(matrix)
    return apply_mlp(attend(H, printed_heads(d, matrix, bound)), printed_units(d, theta, last))


def read_beta(H: Tensor) -> Tensor:
    """β at the odd tokens, a column for each prefix n = 0, …, N."""
    d = len(H) // 2 - 1
    return H[d + 1 : 2 * d + 1, 0::2]
