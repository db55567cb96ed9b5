"""One layer of linear attention: its loss on tokens, and the limit of its optimum.

Behind Theorem 1: equations (5) and (7), and the limit of long prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.prompts import attention, draw_covariance, draw_normal, enumerate_prompts
from innerloop.theory.single_layer import SingleLayerLoss

SIZES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (3, 1))
"""Pairs (d, n) whose token expectation is summed exactly, over at most 3⁹ prompts."""
EXAMPLES = [round(10 ** (k / 2)) for k in range(15)]
"""Numbers n of examples for the limit of long prompts."""


def compare_with_tokens(generator: torch.Generator) -> list[tuple[Case, float, float]]:
    """Sum the loss (5) over all prompts of a rule that is exact for it; then by moments."""
    rows = []
    for d, n in SIZES:
        S = draw_covariance(generator, d, 4.0)
        Z, w, mass = enumerate_prompts(torch.linalg.cholesky(S), n, 5)
        P, Q = draw_normal(generator, d + 1, d + 1), draw_normal(generator, d + 1, d + 1)
        entry = (Z + attention(Z, P, Q) / n)[:, d, n] + (w * Z[:, :d, n]).sum(-1)
        known = SingleLayerLoss(S, n).loss(P[d], Q[:, :d])
        rows.append((Case(d=d, n=n), float((mass * entry**2).sum()), float(known)))
    return rows


def measure_limits(
    generator: torch.Generator, stated: Callable[[Tensor, int], tuple[Tensor, Tensor]]
) -> dict[str, list[float]]:
    """Measure the relative distance of −A and Σ⁻¹ for each number of examples."""
    limits = {}
    for d, condition in ((1, 1.0), (3, 4.0), (5, 100.0)):
        S = draw_covariance(generator, d, condition)
        target = torch.linalg.inv(S)
        name = f"$d = {d}$, condition number {float(torch.linalg.cond(S)):.3g}"
        off = [-stated(S, n)[1][:d] - target for n in EXAMPLES]
        limits[name] = [float(matrix.norm() / target.norm()) for matrix in off]
    return limits


def tabulate_losses() -> list[dict[str, float | int]]:
    """Tabulate the loss of (8) and of its limit by the number of examples, Σ = I, d = 5."""
    rows = []
    for n in (1, 2, 5, 10, 20, 50, 100, 1000):
        layer = SingleLayerLoss(torch.eye(5, dtype=torch.float64), n)
        b, A = layer.optimum()
        least, plain = float(layer.loss(b, A)), float(layer.loss(b, A / -A[0, 0]))
        told = {"loss at (8)": least, "loss at A = −Σ⁻¹": plain, "loss at A = 0": 5.0}
        rows.append({"d": 5, "n": n, "−A": float(-A[0, 0]), **told})
    return rows


def draw_limit_figure(limits: Mapping[str, list[float]]) -> Figure:
    rows = [
        {"n": n, "data": name, "distance": value}
        for name, far in limits.items()
        for n, value in zip(EXAMPLES, far, strict=True)
    ]
    return draw_lines(
        "The optimal weights approach the inverse covariance like 1/n",
        rows,
        "n: examples in the prompt, n",
        "distance: ‖−A − Σ⁻¹‖ / ‖Σ⁻¹‖ (Frobenius)",
        by="data: covariance",
        log="xy",
    )
