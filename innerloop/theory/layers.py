"""The exact in-context loss of linear layers that may update x as well as labels.

Setting    layers of form (13) of ahn2023, P_i = diag(B_i, 1), Q_i = diag(A_i, 0). G is the
           average of x xᵀ over the context. Before layer i, x has become P_i x, and the error on
           a query is w*ᵀ H_i x:
           H_{i+1} = H_i (I + G P_iᵀ A_i P_i),  P_{i+1} = (I + B_i P_i G P_iᵀ A_i) P_i
Loss       E tr(Hᵀ Cov(w*) H Cov(x)), a polynomial in G: of degree 2L without B_i, 3^L − 1 with B_i
Restricted A_i = a_i Σ⁻¹, B_i = b_i I, Cov(w*) = Σ⁻¹: the loss is a function of the eigenvalues g of
           the whitened G, for every Σ
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.theory.bartlett import bartlett_rule
from innerloop.theory.spectrum import spectral_rule


def loss_degree(layers: int, moving: bool) -> int:
    """Return the degree of the loss in G.

    If x has degree p in G after a layer, the label has degree 2p + 1.
    """
    return 3**layers - 1 if moving else 2 * layers


def residual(
    G: Float[Tensor, "*batch d d"],
    A: Float[Tensor, "layers d d"],
    B: Float[Tensor, "steps d d"] | None = None,
) -> Float[Tensor, "*batch d d"]:
    """Compute the H for which the error on a query x is w*ᵀ H x; the last B_i has no effect."""
    identity = torch.eye(G.shape[-1], dtype=G.dtype)
    P, H = identity, identity
    for i in range(len(A)):
        inner = P.mT @ A[i] @ P
        H = H + H @ G @ inner
        if B is not None and i < len(A) - 1:
            P = P + B[i] @ P @ G @ inner
    return H


@dataclass(frozen=True, eq=False)
class LayeredLoss:
    """The loss of layers on prompts with x ~ N(0, Σ), w* ~ N(0, Σ⁻¹) and n examples."""

    covariance: Float[Tensor, "d d"]
    n: int
    layers: int
    moving: bool = False
    """Whether layers update x (B_i)."""

    def loss(self, A: Tensor, B: Tensor | None = None) -> Tensor:
        """Compute the loss f(A, B) of any matrices, differentiably."""
        S, d = self.covariance, len(self.covariance)
        G, mass = bartlett_rule(d, self.n, loss_degree(self.layers, self.moving))
        root = torch.linalg.cholesky(S)
        H = residual(root @ G @ root.mT, A, B)
        return (mass * (H * (torch.linalg.inv(S) @ H @ S)).sum((-1, -2))).sum()


def restricted_loss(
    a: Float[Tensor, "*batch layers"], b: Float[Tensor, "*batch steps"] | None, d: int, n: int
) -> Float[Tensor, "*batch"]:
    """Compute f at A_i = a_i Σ⁻¹, B_i = b_i I, which does not depend on Σ.

    `b` has one entry fewer than `a`; None means layers that do not update x.
    """
    g, mass = spectral_rule(d, n, loss_degree(a.shape[-1], b is not None))
    return (mass * restricted_residual(a, b, g) ** 2).sum(-1)


def restricted_residual(
    a: Float[Tensor, "*batch layers"], b: Float[Tensor, "*batch steps"] | None, g: Tensor
) -> Tensor:
    """Compute the eigenvalues of H at A_i = a_i Σ⁻¹, B_i = b_i I from those of the whitened G."""
    p, h = torch.ones_like(g), torch.ones_like(g)
    for i in range(a.shape[-1]):
        scaled = g * p**2
        h = h * (1 + a[..., i, None] * scaled)
        if b is not None and i < a.shape[-1] - 1:
            p = p * (1 + (a[..., i] * b[..., i])[..., None] * scaled)
    return h
