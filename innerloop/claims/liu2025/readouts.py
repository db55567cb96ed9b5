"""LISTA-VM at every prefix, and its two read-outs (Appendix E), on measurements of ±1."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.liu2025.measurements import draw_entries, draw_sparse_vectors, iterate
from innerloop.theory import sparse

DELTA, C, S, D = 0.1, 0.25, 1, 4
"""‖x‖ = √D = b_x exactly, and b_β = ‖β*‖₁ = 1."""


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
    generator: torch.Generator, draws: int, n: int, layers: int, gamma: float, start: int
) -> Prefixes:
    """Simulate prefixes 0 … n of random instances; Lemma 1's thresholds at `start` examples."""
    x = draw_entries(generator, "signs", draws, n + 1, D)
    star = draw_sparse_vectors(generator, draws, D, S)
    counts = torch.arange(n + 1, dtype=torch.float64)
    sums = torch.cumsum(x.unsqueeze(-1) * x.unsqueeze(-2), dim=1)
    before = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], dim=1)
    G = 2 * before / (2 * counts + 1)[:, None, None]
    a, b = sparse.deviation_width(S, DELTA, start, C), sparse.deviation_width(D, DELTA, start, C)
    shrink = gamma * (2 * S - 1) * b + 1 - gamma * start / (start + 2) * (1 - a)
    thetas = gamma * b * shrink ** torch.arange(layers, dtype=torch.float64)
    every = star.unsqueeze(1).expand(draws, n + 1, D)
    return Prefixes(x, star, iterate(G, every, gamma, thetas))
