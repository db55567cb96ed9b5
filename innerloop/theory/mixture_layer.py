"""The exact in-context loss of one linear attention layer on a mixture of linear regressions.

Setting    y = ⟨β_z, x⟩ + ϑε, z = k with probability π_k, x ~ N(0, I), ε ~ N(0, 1); the β_k are
           independent, uniform on the sphere of radius r
Layer      ŷ = bᵀ C A x at a fresh x, C = (1/n) Σ (x, y)(x, y)ᵀ with the blocks G, s, t, b = (p, β),
           A = [R; aᵀ]; the label at x is ⟨β_z, x⟩ + ϑε for a fresh z
Moments    E y² = r² + ϑ² =: e for all β_k, and conditionally on the β_k, y is N(0, e)
           E[s β̄ᵀ] = mI, m = r²/d Σ_k π_k², because β̄ = Σ_k π_k β_k and E[s | β] = β̄
           E[s sᵀ] = vI, v = (e + 2r²/d)/n + (1 − 1/n) m
           E[t G] = (e + (2r²/d)/n) I, E[t²] = e² (1 + 2/n), E[G B G] = B + (Bᵀ + tr(B) I)/n
Loss       the part of ŷ that is odd in the β_k is sᵀKᵀx with K = βRᵀ + apᵀ; it contributes
           e − 2m tr K + v‖K‖². The label has no even part, so the even part of ŷ contributes
           E‖RᵀGp + β t a‖². The minimum is e − d m²/v, at K = (m/v) I with the even part 0
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError


@dataclass(frozen=True, eq=False)
class MixtureLayerLoss:
    """The exact loss on prompts of n examples in d dimensions, with K vectors of norm `signal`."""

    d: int
    n: int
    components: int
    signal: float = 1.0
    noise: float = 0.0
    proportions: Tensor | None = None

    def __post_init__(self) -> None:
        if min(self.d, self.n, self.components) < 1:
            raise InputError(
                "d, n and components must be at least 1, got "
                f"{self.d}, {self.n} and {self.components}"
            )
        if abs(float(self.shares.sum()) - 1) > 1e-9 or self.shares.shape != (self.components,):
            raise InputError(
                f"proportions must be {self.components} numbers with sum 1, got "
                f"{self.shares.tolist()}"
            )

    @property
    def shares(self) -> Float[Tensor, " components"]:
        """The proportions π of the vectors; by default, they are equal."""
        if self.proportions is not None:
            return self.proportions
        return torch.full((self.components,), 1 / self.components, dtype=torch.float64)

    @property
    def label_power(self) -> float:
        """The mean square of a label, E y²."""
        return self.signal**2 + self.noise**2

    @property
    def overlap(self) -> float:
        """The factor m in E[s β̄ᵀ] = m I, where s = (1/n) Σ y x and β̄ = Σ_k π_k β_k."""
        return self.signal**2 / self.d * float(self.shares.square().sum())

    @property
    def spread(self) -> float:
        """The mean square v of each entry of s = (1/n) Σ y x: E[s sᵀ] = v I."""
        own = (self.label_power + 2 * self.signal**2 / self.d) / self.n
        return own + (1 - 1 / self.n) * self.overlap

    @property
    def minimum(self) -> float:
        """The smallest loss."""
        return self.label_power - self.d * self.overlap**2 / self.spread

    @property
    def optimum(self) -> Float[Tensor, "d d"]:
        """The K with the smallest loss."""
        return self.overlap / self.spread * torch.eye(self.d, dtype=torch.float64)

    def loss(self, b: Float[Tensor, "*batch d1"], A: Float[Tensor, "*batch d1 d"]) -> Tensor:
        """Compute the loss E (ŷ − y)², differentiable in both arguments."""
        p, beta, R, a = b[..., :-1], b[..., -1], A[..., :-1, :], A[..., -1, :]
        K = beta[..., None, None] * R.mT + a.unsqueeze(-1) * p.unsqueeze(-2)
        trace = K.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        odd = self.label_power - 2 * self.overlap * trace + self.spread * K.square().sum((-2, -1))
        return odd + self._even_part(p, beta, R, a)

    def _even_part(self, p: Tensor, beta: Tensor, R: Tensor, a: Tensor) -> Tensor:
        """Compute E‖RᵀGp + β t a‖²."""
        n, e = self.n, self.label_power
        through = (R.mT @ p.unsqueeze(-1)).squeeze(-1)  # Rᵀp
        inner = (
            through.square().sum(-1) * (1 + 1 / n)
            + R.square().sum((-2, -1)) * p.square().sum(-1) / n
        )
        cross = (e + 2 * self.signal**2 / self.d / n) * (through * a).sum(-1)
        fourth = e**2 * (1 + 2 / n) * a.square().sum(-1)
        return inner + 2 * beta * cross + beta**2 * fourth
