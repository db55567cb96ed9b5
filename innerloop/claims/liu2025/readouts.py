"""LISTA-VM at every prefix, and its linear read-out (Appendix E), on measurements of ±1."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.liu2025.measurements import draw_entries, draw_sparse_vectors, iterate
from innerloop.theory import sparse

DELTA, C, S, D = 1e-6, 0.25, 1, 4
"""‖x‖ = √D = b_x exactly, and b_β = ‖β*‖₁ = 1. At n = 2,000, n δ is 0.002."""
B_X = math.sqrt(D)
N_0 = math.ceil(sparse.least_examples(S, D, DELTA, C))


class Prefixes(NamedTuple):
    """State of token 2m+1 after K layers, for K = 0, 1, … and m = 0, …, n."""

    x: Tensor
    """draws × (n+1) × D: x_{m+1} in row m."""
    star: Tensor
    beta: Tensor
    """(layers + 1) × draws × (n+1) × D."""

    @property
    def labels(self) -> Tensor:
        return (self.x * self.star.unsqueeze(1)).sum(-1)

    def query_readout(self, layers: int) -> Tensor:
        """Query read-out ŷ_{m+1} = ⟨x_{m+1}, β_{2m+1}⟩, which has seen y_1, …, y_m."""
        return (self.x * self.beta[layers]).sum(-1)

    def linear_readout(self, layers: int, m: int, floor: float, share: float = 1.0) -> Tensor:
        """Linear read-out of the proof: 2/(p(2m+1)) Σ_{l≤m} σ(⟨x_{m+1}, β_{2l+1}⟩ − B') + B'."""
        heard = (self.scores(layers, m) - floor).relu().sum(-1)
        return 2 / share * heard / (2 * m + 1) + floor

    def scores(self, layers: int, m: int) -> Tensor:
        """The scores ⟨x_{m+1}, β_{2l+1}⟩ for l = 0, …, m: draws × (m+1)."""
        return (self.beta[layers][:, : m + 1] * self.x[:, m : m + 1]).sum(-1)


def simulate_prefixes(
    generator: torch.Generator, draws: int, n: int, layers: int, gamma: float, delta: float = DELTA
) -> Prefixes:
    """Simulate prefixes 0 … n of random instances with Lemma 1's thresholds for N_0 examples."""
    least = math.ceil(sparse.least_examples(S, D, delta, C))
    x = draw_entries(generator, "signs", draws, n + 1, D)
    star = draw_sparse_vectors(generator, draws, D, S)
    counts = torch.arange(n + 1, dtype=torch.float64)
    sums = torch.cumsum(x.unsqueeze(-1) * x.unsqueeze(-2), dim=1)
    before = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], dim=1)
    G = 2 * before / (2 * counts + 1)[:, None, None]
    a, b = (sparse.deviation_width(among, delta, least, C) for among in (S, D))
    shrink = gamma * (2 * S - 1) * b + 1 - gamma * least / (least + 2) * (1 - a)
    thetas = gamma * b * shrink ** torch.arange(layers, dtype=torch.float64)
    every = star.unsqueeze(1).expand(draws, n + 1, D)
    return Prefixes(x, star, iterate(G, every, gamma, thetas))


class Heard(NamedTuple):
    """The linear read-out at one n, K and B': its errors, its bound, and the events it needs."""

    n: int
    K: int
    gamma: float
    floor: float
    """B'."""
    p: float
    """Share of tokens that are heard: scores of at least B'."""
    errors: Tensor
    """|y_n − ŷ_n|, draw by draw."""
    query: Tensor
    """The errors of the query read-out."""
    bound: float
    proper: Tensor
    """2 b_x/(2n−1) Σ ‖β_j − β*‖ + (|B'| + |y_n|)/(2n−1), which holds for p = 1."""
    missed: float
    """δ' = P(not E₁) + P(not E₂)."""


FLOORS = (0.2, 0.5, 0.9, 1.1, 2.0)
"""B' > 0: else E₁ never holds."""
LAYERS = (1, 2, 4, 8, 12)
GAMMA = 1.0
SLOW_GAMMA, SLOW_LAYERS, SHARES = 0.05, 30, (0.1, 0.05, 0.02)
"""Steps so small that K(1 − 2γ/3)^K is of order √n, and the shares of tokens to hear there."""


def measure_linear(generator: torch.Generator, draws: int, n: int) -> list[Heard]:
    """Measure the linear read-out of y_n; the first B' of each K is below all scores, so p = 1."""
    found, rows = simulate_prefixes(generator, draws, n - 1, max(LAYERS), GAMMA), []
    for K in LAYERS:
        scores = found.scores(K, n - 1)
        for floor in (math.floor(float(scores.min())) - 1.0, *FLOORS):
            if float((scores >= floor).double().mean()) >= 0.01:
                rows.append(_measure_floor(found, n, K, GAMMA, floor))
    return rows


def measure_slow(generator: torch.Generator, draws: int, n: int) -> list[Heard]:
    """Measure it for small steps and the B' that hear a tenth of the tokens, a twentieth, 2 %."""
    found = simulate_prefixes(generator, draws, n - 1, SLOW_LAYERS, SLOW_GAMMA)
    scores = found.scores(SLOW_LAYERS, n - 1).flatten().sort(descending=True).values
    floors = [float(scores[int(share * len(scores))]) for share in SHARES]
    return [_measure_floor(found, n, SLOW_LAYERS, SLOW_GAMMA, floor) for floor in floors]


def _measure_floor(found: Prefixes, n: int, K: int, gamma: float, floor: float) -> Heard:
    y, a = found.labels[:, n - 1], 1 - 2 / 3 * gamma
    heard = found.scores(K, n - 1) >= floor
    p = float(heard.double().mean())
    # j ≤ N_0 counts tokens, and every other one is odd.
    early = heard[:, : N_0 // 2].any(-1).double().mean()
    off = (heard.sum(-1) - (p * n - p / 2)).abs() > K * math.sqrt(n * p) * a**K
    errors = (found.linear_readout(K, n - 1, floor, p) - y).abs()
    query = (found.query_readout(K)[:, n - 1] - y).abs()
    c4 = compute_c4(n, K, abs(floor), p, a)
    bound = B_X * a**K + c4 * K / math.sqrt(n) * a ** (K - 1)
    away = (found.beta[K] - found.star.unsqueeze(1)).norm(dim=-1).sum(-1)
    proper = (2 * B_X * away + abs(floor) + y.abs()) / (2 * n - 1)
    missed = float(early + off.double().mean())
    return Heard(n, K, gamma, floor, p, errors, query, bound, proper, missed)


def compute_c4(n: int, K: int, floor: float, p: float, a: float) -> float:
    """Compute c₄ for a = 1 − 2γ/3; |η| where (E.7) has it negative, and C_x for XᵀX = n I."""
    L = (math.log(D) + math.log(S) - math.log(DELTA)) / C
    eta = a / (a - (K - 1) / (2 * math.sqrt(2) * (4 * S - 2)))  # √(L/N_0) is 1/(2√2(4S−2))
    C_x = D * B_X * (n + 1) / n
    whole = 2 * math.sqrt(2) * B_X * abs(eta) * math.sqrt(L) + 2 * floor + 2 * C_x * B_X
    return whole / math.sqrt(p)
