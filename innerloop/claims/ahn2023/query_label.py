"""Layers of form (13) as (54) prints them, on X (…, d, n+1) and Y (…, 1, n+1), and their matrices.

Behind Lemmas 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from innerloop.claims.prompts import draw_integer, draw_normal

Rows = tuple[Tensor, Tensor]
Layer = Callable[[Tensor, Tensor, Tensor, Tensor], Rows]


def printed_layer(X: Tensor, Y: Tensor, A: Tensor, B: Tensor) -> Rows:
    """One layer as (54) prints it; M drops the query as a key."""
    n = X.shape[-1] - 1
    M = torch.ones(n + 1, dtype=X.dtype)
    M[-1] = 0.0
    scores = (X * M).mT @ A @ X / n
    return X + B @ X @ scores, Y + Y @ scores


def unmasked_layer(X: Tensor, Y: Tensor, A: Tensor, B: Tensor) -> Rows:
    """A layer in which the query is a key too."""
    scores = X.mT @ A @ X / (X.shape[-1] - 1)
    return X + B @ X @ scores, Y + Y @ scores


def leaking_layer(X: Tensor, Y: Tensor, A: Tensor, B: Tensor) -> Rows:
    """A layer that also writes the query's label into its x."""
    X2, Y2 = printed_layer(X, Y, A, B)
    last = torch.zeros_like(Y)
    last[..., -1] = Y[..., -1]
    return X2 + 0.1 * last, Y2


def run_layers(X: Tensor, Y: Tensor, A: Tensor, B: Tensor, layer: Layer) -> Rows:
    """Run all layers; A and B are (layers, d, d)."""
    for k in range(len(A)):
        X, Y = layer(X, Y, A[k], B[k])
    return X, Y


def form_13_matrices(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices P = diag(B, 1) and Q = diag(A, 0) of form (13)."""
    P = torch.nn.functional.pad(B, (0, 1, 0, 1))
    P[-1, -1] = 1.0
    return P, torch.nn.functional.pad(A, (0, 1, 0, 1))


def draw_weights(generator: torch.Generator, layers: int, d: int) -> tuple[Tensor, Tensor]:
    """Draw A_i (symmetric or not) and B_i, scaled to keep the stream of order one."""
    A = draw_normal(generator, layers, d, d) / (2 * d)
    if draw_integer(generator, 0, 1):
        A = (A + A.mT) / 2
    return A, draw_normal(generator, layers, d, d) / (2 * d)


def describe_size(sizes: Sequence[int]) -> tuple[tuple[int, ...], str]:
    d, n, layers = sizes
    return (d, n, layers), f"d = {d}, n = {n}, {layers} layers"
