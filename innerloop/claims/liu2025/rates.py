"""LISTA-VM on random measurements at n ≥ N_0: its errors layer by layer against a bound."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check
from innerloop.claims.liu2025.measurements import add_violation_rate, draw_rows
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

K, DELTA = 12, 0.1


class Curves(NamedTuple):
    """Errors after 0, 1, …, K layers, draw by draw, and the bound that they are held to."""

    errors: Tensor
    """(K + 1) × draws."""
    bound: Tensor
    """K + 1."""
    case: Case


Found = dict[str, list[Curves]]
"""Curves by what they are of: which parameters, which bound."""


def judge_curves(statement: str, found: list[Curves], failing: float) -> Check:
    """Judge that the bound holds at all layers, but for a share `failing` of the draws.

    Chance is allowed four standard errors of that share.
    """
    trial = Inequality(statement)
    for each in found:
        over = each.errors[1:] > each.bound[1:, None] * (1 + 1e-9) + 1e-13
        add_violation_rate(trial, over.any(0), failing, each.case)
    return trial.check()


def stop_learning(found: Found) -> Found:
    """Make data in which no layer lowers the error."""
    for curves in found.values():
        for each in curves:
            each.errors[:] = each.errors[:1]
    return found


def draw_grams(generator: torch.Generator, law: str, n: int, d: int, draws: int) -> Tensor:
    """Draw ZᵀZ/(2n+1) for n independent rows, in chunks."""
    found = torch.zeros(draws, d, d, dtype=torch.float64)
    for start in range(0, n, 4_096):
        z = draw_rows(generator, law, draws, min(4_096, n - start), d)
        found += z.mT @ z
    return found / (2 * n + 1)


def choose_thresholds(n: float, S: int, d: int, c: float, gamma: float) -> tuple[float, Tensor]:
    """Choose the step and θ^(1), …, θ^(K) by Lemma 1, from Lemma 3's widths at n; b_β = 1."""
    a, b = sparse.deviation_width(S, DELTA, n, c), sparse.deviation_width(d, DELTA, n, c)
    step = min(gamma, 1.0)
    shrink = step * (2 * S - 1) * b + 1 - step * n / (n + 2) * (1 - a)
    return step, step * b * shrink ** torch.arange(K, dtype=torch.float64)


def bound_errors(
    n: float, S: int, d: int, c: float, gamma: float, weight: float | None = None
) -> Tensor:
    """The bound e^(−α_n k) for k = 0, …, K; `weight` as in `sparse.rate_factor`."""
    factor = sparse.rate_factor(n, S, d, DELTA, c, gamma, weight)
    return torch.tensor(factor, dtype=torch.float64) ** torch.arange(K + 1)
