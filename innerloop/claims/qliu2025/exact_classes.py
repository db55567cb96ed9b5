"""Small classes of the slides' transformers: trying all weights finds the minimiser on a pool.

Network    L equal layers: two heads add bXXᵀu/N to u on token 1, the MLP multiplies u by 1 + c:
           a power iteration of I + bXXᵀ/N whose length c steadies; d = 2, N = 6
Class      all (b, c) of a grid, 225 weights, or two of them: the best for instances with a small
           gap and the best for the others; for L = 1, 2, 3
Laws       uniform on a few hundred instances of Assumption 1, a start with ⟨p, v⟩ > 0 each, so that
           risks, their least one and the minimiser on a pool are exact. The hard laws draw from
           those with the smaller gap λ₁ − λ₂ with probability q + s/√n, where two weights tie at q:
           an excess of order n^(−1/2), which no pool of n avoids
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.prompts import draw_normal
from innerloop.claims.qliu2025.slides import Layer, run_layers

D, POINTS, SIDE, XI = 2, 6, 15, 0.05
LAYERS, SHIFTS = (1, 2, 3), (-1.0, -0.5, 0.0, 0.5, 1.0)
LARGEST, GAP = 12.0, 0.5
"""B_X and Δ of Assumption 1; Δ bounds the gap to λ₂ as well."""


def build_layer(b: float, c: float) -> Layer:
    """The layer with weights b and c, tokens (x, u): its heads have an axis for instances."""
    eye, zero = torch.eye(D, dtype=torch.float64), torch.zeros(D, D, dtype=torch.float64)
    to_first = torch.cat([torch.cat([zero, eye], 1), torch.cat([zero, zero], 1)])
    read_x = torch.cat([torch.cat([eye, zero], 1), torch.cat([zero, zero], 1)])
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    W1 = torch.cat([torch.cat([zero, eye], 1), torch.cat([zero, -eye], 1)])
    W2 = torch.cat([torch.cat([zero, zero], 1), torch.cat([c * eye, -c * eye], 1)])
    return Layer(signs * b * to_first.mT, signs * to_first, read_x.expand(2, 1, -1, -1), W1, W2)


def draw_instances(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw streams (X, p on token 1), leading eigenvectors with ⟨p, v⟩ > 0, and gaps."""
    X = draw_normal(generator, 4 * count, D, POINTS)
    values, vectors = torch.linalg.eigh(X @ X.mT)
    gaps = values[:, -1] - values[:, -2]
    kept = ((values[:, -1] <= LARGEST) & (gaps >= GAP)).nonzero().flatten()[:count]
    p = draw_normal(generator, len(kept), D)
    p, v = p / p.norm(dim=-1, keepdim=True), vectors[kept, :, -1]
    start = torch.zeros(len(kept), D, POINTS, dtype=torch.float64)
    start[..., 0] = p
    return torch.cat([X[kept], start], 1), v * (v * p).sum(-1, keepdim=True).sign(), gaps[kept]


def measure_losses(H: Tensor, v: Tensor, layers: int) -> Tensor:
    """The losses ‖v̂ − v‖ of every weight of the grid, by instance."""
    losses = []
    for b in torch.linspace(0.0, 3.0, SIDE).tolist():
        for c in torch.linspace(-0.9, 0.3, SIDE).tolist():
            out = run_layers([build_layer(b, c)] * layers, H, causal=False)
            losses.append((out[:, D:, 0] - v).norm(dim=-1))
    return torch.stack(losses)


def find_tie(losses: Tensor, near: Tensor) -> float:
    """The share q of the group `near` at which the least risk changes its weight most sharply."""
    a, b = losses[:, near].mean(1), losses[:, ~near].mean(1)
    q = torch.linspace(0.02, 0.98, 97, dtype=torch.float64)
    best = (q[:, None] * a + (1 - q[:, None]) * b).argmin(1)
    slopes = (a - b)[best]
    k = int((slopes[1:] - slopes[:-1]).abs().argmax())
    one, other = best[k], best[k + 1]
    if one == other:
        return 0.5
    return float((b[other] - b[one]) / (a[one] - b[one] - a[other] + b[other]))


def measure_excess(
    generator: torch.Generator, losses: Tensor, weights: Tensor, n: int, pools: int
) -> float:
    """The 1 − ξ quantile over pools of the minimiser's excess risk, n instances by `weights`."""
    picks = torch.multinomial(weights, n * pools, replacement=True, generator=generator)
    cells = torch.arange(pools).repeat_interleave(n) * len(weights) + picks
    counts = torch.bincount(cells, minlength=pools * len(weights)).reshape(pools, -1).double()
    risks = losses @ (weights / weights.sum())
    return float((risks[(counts @ losses.mT).argmin(1)] - risks.min()).quantile(1 - XI))


def measure_classes(
    generator: torch.Generator, instances: int, sizes: list[int], pools: int
) -> list[dict[str, Any]]:
    """Measure excess risks over n, by layers, class and law; of the hard laws the worst."""
    H, v, gaps = draw_instances(generator, instances)
    near, rows = gaps < gaps.median(), []
    for layers in LAYERS:
        whole = measure_losses(H, v, layers)
        two = whole[[int(whole[:, group].mean(1).argmin()) for group in (near, ~near)]]
        for name, losses in (("225 weights", whole), ("2 weights", two)):
            tie = find_tie(losses, near)
            for n in sizes:
                fixed = torch.ones(len(v), dtype=torch.float64)
                shares = [min(max(tie + s / math.sqrt(n), 0.0), 1.0) for s in SHIFTS]
                hard = [torch.where(near, q * fixed, (1 - q) * fixed) for q in shares]
                for law, given in (("fixed", [fixed]), ("hard", hard)):
                    found = [measure_excess(generator, losses, each, n, pools) for each in given]
                    row = {"layers": layers, "class": name, "law": law, "n": n}
                    rows.append({**row, "excess": max(found)})
    return rows
