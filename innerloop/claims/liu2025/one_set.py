"""One set of parameters for every n (Theorem 5.1), or for every ‖β*‖₁ (Theorem D.1), is too few.

Setting    one layer, S = 1, x = ±1, γ = 3/2, δ = 0.01, n = N_0; β* = r e_j, j uniform, r one of two
           values. The layer gives S_θ(r v), v = M'(e_j + ξ), M' = nM/(2n+1), ξ_j = 0, ξ_i the mean
           of x_i x_j over the examples. q = e^(−α_n); a share f of the draws may miss the bound,
           f = δ or 3δ, so at r = 1 a share 2f
Small θ    D.1, r = 1 or ρ: where both are met on one X, v_j − θ ≤ 1 + q and v_j − θ/ρ ≥ 1 − q, so
           θ ≤ 2qρ/(1 − ρ). 5.1, b_β = 1, r = 1 or 1/2: at n = N likewise θ ≤ 3 e^(−α_N). Both go to
           0, with ρ and with N, which nothing bounds; S_θ moves a vector by at most θ√d
M = mI     θ → 0 leaves ‖m'(e_j + ξ) − e_j‖ ≥ √(e/(1 + e)), e = ‖ξ‖², for every m, even one for each
           X. e is near d/N_0, of order d/log d: whatever c is, this passes q for large d
Any M      let p_j be the chance to miss q at r = 1; at most a share 4f of the j have p_j ≥ 1/2.
           The sign of column j turns ξ into −ξ, so with chance 1 − 2p_j both errors are below q,
           and by the parallelogram law ‖M'e_j − e_j‖² + ‖M'ξ‖² ≤ q². Hence ‖M'e_i‖ ≥ 1 − q for all
           i but a share 4f. The sign of column i turns that of ξ_i alone: given the |ξ_i|,
           Z = ‖M'ξ‖² has the mean V ≥ (1 − q)² ∑ ξ_i² over those i, and E Z² ≤ 3V², so
           P(Z > q²) ≥ (1 − t)²/3 with t = q²/V ≤ 1 (Paley and Zygmund): p_j ≥ E (1 − t)²/6
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check
from innerloop.claims.liu2025.measurements import add_violation_rate
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

DELTA, C, GAMMA = 0.01, 0.25, 1.5
SIZES = (1_000, 10_000)
"""The d at which M = mI fails, and that at which every M does."""
SLACK = 1.001
"""θ√d may add this much to q: θ is as small as one likes."""


class Offsets(NamedTuple):
    """The squares ξ_i² of many draws at n = N_0: draws × (d − 1)."""

    d: int
    n: int
    squares: Tensor


def draw_offsets(generator: torch.Generator, draws: int) -> list[Offsets]:
    """Draw means of n signs, which are binomial."""
    found = []
    for d in SIZES:
        n = math.ceil(sparse.least_examples(1, d, DELTA, C))
        half = torch.full((draws, d - 1), 0.5, dtype=torch.float64)
        counts = torch.binomial(n * torch.ones_like(half), half, generator=generator)
        found.append(Offsets(d, n, (2 * counts / n - 1).square()))
    return found


def judge_one_set(
    statement: str, offsets: list[Offsets], failing: float, weight: float | None = None
) -> dict[str, Check]:
    """Judge both kinds of M, where a share `failing` may miss; `weight` as in `rate_factor`."""
    scaled, dense = Inequality(statement), Inequality(statement)
    for each in offsets:
        q = SLACK * sparse.rate_factor(each.n, 1, each.d, DELTA, C, GAMMA, weight)
        whole = each.squares.sum(-1)
        best = (whole / (1 + whole)).sqrt()
        note = f"least error {float(best.median()):.3g}, bound {q / SLACK:.3g}"
        case = Case(d=each.d, n=each.n, S=1, K=1, γ=GAMMA, δ=DELTA)
        add_violation_rate(scaled, best > q, 2 * failing, case.extend(note=note))
        if each.d == SIZES[-1]:
            kept = math.floor((1 - 4 * failing) * each.d) - 1
            least = each.squares.sort(-1).values[:, :kept].sum(-1)
            ratio = (q / (1 - q)) ** 2 / least
            missed = ((1 - ratio).clamp_min(0).square() / 6).mean()
            note = "the share of draws that must exceed the bound, and the share that may"
            dense.add(missed, 2 * failing, case.extend(note=note))
    return {
        f"$M = mI$, where $m$ may even depend on $X$, $d ≥ {SIZES[0]}$": scaled.check(),
        f"any $M$, $d = {SIZES[-1]}$": dense.check(),
    }
