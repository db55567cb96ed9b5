"""Prompts and attention as the papers on linear attention print them, tokens in columns.

Z is (…, d+1, n+1): the rows are x and the label, the columns n context tokens and the query, whose
label is 0. Written from the equations, apart from `innerloop.transformer`: what is claimed about
tokens is tested on tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.theory.gaussian import product_rule

Weights = tuple[Tensor, Tensor]
"""The matrices P and Q of a layer."""


def draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw standard normals in float64."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def draw_integer(generator: torch.Generator, least: int, most: int) -> int:
    """Draw an integer uniformly, both ends included."""
    return int(torch.randint(least, most + 1, (), generator=generator))


def draw_covariance(generator: torch.Generator, d: int, condition: float) -> Float[Tensor, "d d"]:
    """Draw a dense Σ with trace d whose eigenvalues lie within a factor of `condition`."""
    rotation, _ = torch.linalg.qr(draw_normal(generator, d, d))
    powers = torch.rand(d, generator=generator, dtype=torch.float64)
    spectrum = condition**powers
    return rotation * (d * spectrum / spectrum.sum()) @ rotation.mT


def build_tokens(
    X: Float[Tensor, "*batch n d"], w: Float[Tensor, "*batch d"], query: Float[Tensor, "*batch d"]
) -> Float[Tensor, "*batch d1 n1"]:
    """Build the prompt Z, with labels ⟨w, x⟩ without noise."""
    labels = X @ w.unsqueeze(-1)
    context = torch.cat([X, labels], dim=-1)
    last = torch.cat([query, torch.zeros_like(query[..., :1])], dim=-1)
    return torch.cat([context, last.unsqueeze(-2)], dim=-2).mT


def attention(Z: Tensor, P: Tensor, Q: Tensor) -> Tensor:
    """Masked linear attention P Z M (Zᵀ Q Z): the query is not a key."""
    M = torch.ones(Z.shape[-1], dtype=Z.dtype)
    M[-1] = 0.0
    return P @ (Z * M) @ (Z.mT @ Q @ Z)


def form_layer(A: Tensor, row: Tensor | None = None, B: Tensor | None = None) -> Weights:
    """The matrices P = [B 0; row 1], where 0 stands for what is not given, and Q = diag(A, 0)."""
    P = torch.nn.functional.pad(torch.zeros_like(A) if B is None else B, (0, 1, 0, 1))
    P[-1, -1] = 1.0
    if row is not None:
        P[-1, :-1] = row
    return P, torch.nn.functional.pad(A, (0, 1, 0, 1))


def run_layers(Z: Tensor, layers: Iterable[Weights], sign: float = 1.0) -> list[Tensor]:
    """Run Z ← Z ± Attn(Z)/n; the tokens before the first layer, and after every layer."""
    found, n = [Z], Z.shape[-1] - 1
    for P, Q in layers:
        found.append(found[-1] + sign * attention(found[-1], P, Q) / n)
    return found


def run_prompt(
    X: Tensor, w: Tensor, query: Tensor, layers: Iterable[Weights], sign: float = 1.0
) -> list[Tensor]:
    """Run layers on the prompt of examples X (…, n, d), weights w and a query."""
    return run_layers(build_tokens(X, w, query), layers, sign)


def enumerate_prompts(
    root: Float[Tensor, "d d"], n: int, degree: int
) -> tuple[Float[Tensor, "points d1 n1"], Float[Tensor, "points d"], Float[Tensor, " points"]]:
    """Prompts with x ~ N(0, R Rᵀ), their w ~ N(0, I), and quadrature weights.

    Weighted sums over them are expectations, exact for polynomials of this degree in each variable.
    """
    d = len(root)
    points, weights = product_rule(d * (n + 2), degree)
    drawn = points.reshape(-1, n + 2, d)
    X, w, query = drawn[:, :n] @ root.mT, drawn[:, n], drawn[:, n + 1] @ root.mT
    return build_tokens(X, w, query), w, weights
