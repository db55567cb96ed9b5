"""Bounded measurements as in Assumption 1, and how often an inequality may fail on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.trials import Inequality

LAWS = {"signs": 1.0, "uniform": math.sqrt(3.0), "three values": 2.0}
"""Laws of mean 0 and variance 1, with the bound a of |z|."""

ONE_HOT = "one-hot"
"""The law of rows whose entries depend on each other."""


def draw_entries(generator: torch.Generator, law: str, *shape: int) -> Tensor:
    """Draw z = ±1; uniform on ±√3; or 0, ±2 with probabilities 3/4, 1/8, 1/8."""
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
    if law == "signs":
        return torch.where(drawn < 0.5, -1.0, 1.0).double()
    if law == "uniform":
        return math.sqrt(12) * (drawn - 0.5)
    return 2.0 * ((drawn < 0.125).double() - (drawn >= 0.875).double())


def draw_rows(generator: torch.Generator, law: str, draws: int, n: int, d: int) -> Tensor:
    """Draw rows of independent entries, or (`ONE_HOT`) rows ±√d e_i, i uniform: covariance I,
    entries that depend on each other."""
    if law != ONE_HOT:
        return draw_entries(generator, law, draws, n, d)
    places = torch.randint(d, (draws, n), generator=generator)
    signs = draw_entries(generator, "signs", draws, n)
    return math.sqrt(d) * signs.unsqueeze(-1) * torch.nn.functional.one_hot(places, d)


def sigmas(d: int, condition: float) -> Tensor:
    """Scales σ_1 ≥ … ≥ σ_d = 1, evenly spaced in logarithm."""
    powers = torch.linspace(1, 0, d, dtype=torch.float64) if d > 1 else torch.zeros(1)
    return condition ** powers.double()


def draw_sparse_vectors(generator: torch.Generator, count: int, d: int, S: int) -> Tensor:
    """Draw β* with its S non-zero entries first, ‖β*‖₁ = 1."""
    star = torch.zeros(count, d, dtype=torch.float64)
    star[:, :S] = torch.randn(count, S, generator=generator, dtype=torch.float64)
    return star / star.abs().sum(-1, keepdim=True)


def iterate(G: Tensor, star: Tensor, gamma: float, thetas: Tensor) -> Tensor:
    """Iterate LISTA-VM: β^(1) = 0, β^(2), …, stacked first; one more than there are thresholds."""
    beta = torch.zeros_like(star)
    found = [beta]
    for theta in thetas:
        moved = beta - gamma * (G @ (beta - star).unsqueeze(-1)).squeeze(-1)
        beta = soft_threshold(moved, theta if theta.ndim == 0 else theta.unsqueeze(-1))
        found.append(beta)
    return torch.stack(found)


def add_violation_rate(found: Inequality, broken: Tensor, failing: float, case: Case) -> float:
    """Add the share of draws that violate a statement.

    A share `failing` may violate it, and chance is allowed four standard errors of that share.
    """
    share = float(broken.double().mean())
    wide = 4 * math.sqrt(failing * (1 - failing) / len(broken))
    left = share if share > failing + wide else min(share, failing)
    note = "the share of draws that violate it, and the share that may"
    working = (f"{int(broken.sum())}/{len(broken)}", "")
    found.add(left, failing, case.extend(note=note), working=working)
    return share
