"""The mixture of β and −β: EM estimates in many problems, and their theoretical errors.

The M step of `SymmetricGradientEM` with T gradient steps, with XᵀX/n computed once: the same
iterates, faster. Theory: for large n the estimate's covariance is the inverse of Fisher's
information over n. The score of an example is (y tanh(y⟨x, β⟩) − ⟨x, β⟩) x, ϑ = 1, which is near
⟨x, β⟩ (y² − 1) x for small η = ‖β*‖/ϑ: the information is near 2η² across β* and 6η² along it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

INNER_STEPS = 6
LEAST_STEPS = 40


def draw_mixture(
    generator: torch.Generator, batch: int, n: int, d: int, eta: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw x, y, β* and a start of norm at least one half, in any direction; ϑ = 1."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    star = torch.zeros(batch, d, dtype=torch.float64)
    star[:, 0] = eta
    x, signs = normal(batch, n, d), normal(batch, n).sign()
    y = signs * (x @ star.unsqueeze(-1)).squeeze(-1) + normal(batch, n)
    start = normal(batch, d)
    return x, y, star, max(eta, 0.5) * start / start.norm(dim=-1, keepdim=True)


def em_estimates(x: Tensor, y: Tensor, start: Tensor, steps: int) -> Tensor:
    """Estimates β after `steps` steps of gradient EM, ϑ = 1."""
    n, d = x.shape[-2:]
    rate = n / (math.sqrt(n) + math.sqrt(d) + 5) ** 2
    gram, q = x.mT @ x / n, x * y.unsqueeze(-1)
    beta = start
    for _ in range(steps):
        pull = q.mT @ torch.tanh(q @ beta.unsqueeze(-1)) / n
        for _ in range(INNER_STEPS):
            beta = beta + rate * (pull - gram @ beta.unsqueeze(-1)).squeeze(-1)
    return beta


def estimation_errors(generator: torch.Generator, batch: int, n: int, d: int, eta: float) -> Tensor:
    """The smaller of ‖β̂ ∓ β*‖ for each problem; of order √n steps where EM is slow."""
    x, y, star, start = draw_mixture(generator, batch, n, d, eta)
    slow = min(1.0, 1 / max(eta, 1e-9) ** 2 / math.sqrt(n))
    found = em_estimates(x, y, start, LEAST_STEPS + int(5 * slow * math.sqrt(n)))
    return torch.minimum((found - star).norm(dim=-1), (found + star).norm(dim=-1))


def regime_edge(n: float, d: int) -> float:
    """The η at which the printed bounds change regime, constant 1."""
    return (d * math.log(n) ** 2 / n) ** 0.25


def fisher_information(eta: float) -> tuple[float, float]:
    """Fisher information across β* and along it, by Gauss-Hermite quadrature over z and noise."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    u, y = eta * nodes[:, None], eta * nodes[:, None] + nodes[None, :]
    squares = (y * np.tanh(y * u) - u) ** 2 * weights[:, None] * weights[None, :]
    return float(squares.sum()), float((squares * nodes[:, None] ** 2).sum())


def fisher_error(n: float, d: int, eta: float) -> float:
    """Asymptotic √E‖β̂ − β*‖² for large n; near √((d − 1)/2 + 1/6)/(η√n) for small η."""
    across, along = fisher_information(eta)
    return math.sqrt(((d - 1) / across + 1 / along) / n)
