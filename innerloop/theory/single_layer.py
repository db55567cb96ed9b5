"""The exact in-context loss of one linear attention layer, for any weights that affect it.

Setting    C = (1/n) Σ z zᵀ over the context tokens z = (x, ⟨w, x⟩), x ~ N(0, Σ), w ~ N(0, I)
Loss       f(b, A) = E[(bᵀ C A x + ⟨w, x⟩)²] for a new x, where b is the last row of P, and A
           consists of the columns of Q that multiply x
Moments    with G = (1/n) Σ x xᵀ, C has the blocks G, Gw, wᵀGw:
           E[tr(G B) G] = tr(Σ B) Σ + (Σ B Σ + Σ Bᵀ Σ)/n,  E[G²] = (n+1)/n Σ² + tr(Σ)/n Σ,
           E[G B G] = Σ B Σ + (Σ Bᵀ Σ + tr(Σ B) Σ)/n,  E[(wᵀGw)²] = E[tr(G)² + 2 tr(G²)]
Minimum    with b = (p, β) and A = [R; aᵀ], the part of bᵀ C A of odd degree in w is wᵀGKᵀ,
           K = βRᵀ + apᵀ, and f − f* = tr(Σ (K − K*) E[G²] (K − K*)ᵀ) + E‖RᵀGp + β (wᵀGw) a‖²_Σ:
           two squares, both 0 at the optimum
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SingleLayerLoss:
    """The exact loss and moments for prompts with covariance Σ and n context tokens."""

    covariance: Float[Tensor, "d d"]
    n: int

    @property
    def d(self) -> int:
        return len(self.covariance)

    def trace_moment(self, B: Tensor) -> Tensor:
        """Compute E[tr(G B) G]."""
        S = self.covariance
        return (S @ B).trace() * S + S @ (B + B.mT) @ S / self.n

    def square_moment(self) -> Tensor:
        """Compute E[G²]."""
        S = self.covariance
        return (self.n + 1) / self.n * S @ S + S.trace() / self.n * S

    def linear_moment(self, v: Float[Tensor, " d"]) -> Float[Tensor, "d1 d1"]:
        """Compute E[⟨v, w⟩ C]."""
        side = (self.covariance @ v)[:, None]
        corner = side.new_zeros(1, 1)
        return _stack_blocks(torch.zeros_like(self.covariance), side, corner)

    def second_moment(self, E: Float[Tensor, "d1 d1"]) -> Float[Tensor, "d1 d1"]:
        """Compute E[⟨C, E⟩ C]."""
        d, identity = self.d, torch.eye(self.d, dtype=E.dtype)
        inner, corner = E[:d, :d], E[d, d]
        one = self.trace_moment(inner + corner * identity)
        side = (self.square_moment() @ (E[:d, d] + E[d, :d]))[:, None]
        # The mean of wᵀGw over w is tr G, and the mean of its square is tr(G)² + 2 tr(G²).
        two = one.trace() + 2 * corner * self.square_moment().trace()
        return _stack_blocks(one, side, two.reshape(1, 1))

    def loss(self, b: Float[Tensor, " d1"], A: Float[Tensor, "d1 d"]) -> Tensor:
        """Compute f(b, A), differentiable in both arguments."""
        S, (even, K) = self.covariance, (self.even_part(b, A), self.odd_coefficient(b, A))
        return (
            S.trace() + 2 * (K * (S @ S)).sum() + ((S @ K @ self.square_moment()) * K).sum() + even
        )

    def odd_coefficient(self, b: Tensor, A: Tensor) -> Tensor:
        """Compute K = βRᵀ + apᵀ: the part of bᵀ C A of odd degree in w is wᵀGKᵀ."""
        d = self.d
        return b[d] * A[:d].mT + torch.outer(A[d], b[:d])

    def even_part(self, b: Tensor, A: Tensor) -> Tensor:
        """Compute E‖RᵀGp + β (wᵀGw) a‖²_Σ, the loss from the part of bᵀ C A of even degree in w."""
        d, S = self.d, self.covariance
        p, beta, R, a = b[:d], b[d], A[:d], A[d]
        identity = torch.eye(d, dtype=S.dtype)
        inner = R @ S @ R.mT
        between = S @ inner @ S * (1 + 1 / self.n) + (S * inner).sum() / self.n * S
        trace = self.trace_moment(identity)
        fourth = trace.trace() + 2 * self.square_moment().trace()
        cross = p @ trace @ R @ S @ a
        return p @ between @ p + 2 * beta * cross + beta**2 * fourth * (a @ S @ a)

    def optimum(self) -> tuple[Float[Tensor, " d1"], Float[Tensor, "d1 d"]]:
        """Return weights of minimal loss: b = e_{d+1}, A = −[((n+1)/n Σ + tr(Σ)/n I)⁻¹; 0]."""
        S, identity = self.covariance, torch.eye(self.d, dtype=self.covariance.dtype)
        top = torch.linalg.inv((self.n + 1) / self.n * S + S.trace() / self.n * identity)
        b = torch.cat([S.new_zeros(self.d), S.new_ones(1)])
        return b, -torch.cat([top, S.new_zeros(1, self.d)])


def _stack_blocks(one: Tensor, side: Tensor, corner: Tensor) -> Tensor:
    return torch.cat([torch.cat([one, side], dim=1), torch.cat([side.mT, corner], dim=1)])
