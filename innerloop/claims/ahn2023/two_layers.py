"""Exact loss of two layers in proportion to the inverse covariance, and its two minima."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.evidence import Axis, Figure, Value
from innerloop.claims.searching import search_minimum
from innerloop.theory.wishart import Wishart


def draw_landscape(grid: int, d: int = 5, n: int = 20) -> tuple[Figure, dict[str, Value]]:
    """Plot the exact loss of A_i = a_i Σ⁻¹, any Σ, at the sizes of the source's section 5.3."""
    law = Wishart(torch.eye(d, dtype=torch.float64) / n, n)
    moments = torch.stack([law.power(k).trace() for k in range(5)])

    def loss(a: Tensor) -> Tensor:
        """E tr((1 + a_0 g)² (1 + a_1 g)²)."""
        total, both = a.sum(-1), a.prod(-1)
        terms = [torch.ones_like(both), 2 * total, total**2 + 2 * both, 2 * total * both, both**2]
        return (torch.stack(terms, dim=-1) * moments).sum(-1)

    start = torch.tensor([[-0.2, -1.5]], dtype=torch.float64)
    best, least, _ = search_minimum(loss, start)
    same, level, _ = search_minimum(lambda a: loss(a.expand(2)), start[:, :1])
    axis = [-2 + 2 * i / (grid - 1) for i in range(grid)]
    points = torch.tensor([[one, two] for one in axis for two in axis], dtype=torch.float64)
    values = loss(points).log10().tolist()
    rows = [
        {"a0": p[0], "a1": p[1], "loss": v} for p, v in zip(points.tolist(), values, strict=True)
    ]
    figure = Figure(
        title="Two layers: the loss is the same when they are swapped",
        rows=rows,
        x=Axis(field="a0", title="a₀, first layer A₀ = a₀Σ⁻¹"),
        y=Axis(field="a1", title="a₁, second layer A₁ = a₁Σ⁻¹"),
        mark="heat",
        colour=Axis(field="loss", title="log₁₀ of the loss"),
        caption=f"d = {d}, n = {n}, exact. Two minima, each the other's mirror image.",
    )
    numbers: dict[str, Value] = {
        "d = 5, n = 20: least loss of two layers": least,
        "one of its two minima: a_0": float(best[0]),
        "one of its two minima: a_1": float(best[1]),
        "least loss with a_0 = a_1": level,
        "that a": float(same[0]),
    }
    return figure, numbers
