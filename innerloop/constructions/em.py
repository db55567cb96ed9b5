"""EM for a mixture of spherical Gaussians with known σ and weights, run by softmax attention.

Algorithm  γ_ik ∝ π_k e^{−‖x_i − μ_k‖²/2σ²},   μ_k ← Σ_i γ_ik x_i / Σ_i γ_ik
Invariant  centroid token k holds μ_k; data token i holds its point and its mark p_i
Proof      see clustering.py: with a = 1/σ² and log π_k added to the scores, shares are exactly γ.
           Let l_ik be these scores. The M head needs log γ_ik up to terms that depend only on k,
           that is l_ik − log π_k − λ_i, where λ_i is the logarithm of the sum that normalises γ_i·;
           and λ_i = Σ_k γ_ik (l_ik − log γ_ik). The E head also computes Σ_k γ_ik μ_k and
           Σ_k γ_ik (log π_k − a‖μ_k‖²/2). A signed pair of ReLU heads that attend only to their own
           token adds a⟨x_i, Σ_k γ_ik μ_k⟩, and an MLP interpolates −γ log γ between knots
Bound      on the m + 1 knots (j/m)², the function −γ log γ is at most 1/(2m²) too small, and λ_i at
           most e = K/(2m²). Weights are therefore wrong by factors within [1, eᵉ], and a mean of
           entries within `bound` by at most 2·bound·tanh(e/4). The error is proportional to knots⁻²
Holds for  entries within `bound` and up to n points. No cluster is empty: see algorithms/em.py
Source     yang2025.he.em-steps. A head with logits log γ would need the logarithm of numbers as
           small as e⁻⁴⁰⁰, which no block computes exactly; λ is finite and smooth
"""

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.em import EM
from innerloop.constructions.clustering import (
    ClusteringConstruction,
    make_chooser,
    move_means,
    share,
)
from innerloop.language import Data, State, define, dot, entry_sum, own_total, piecewise
from innerloop.language.classes import Cost, parameter
from innerloop.problems.base import resolve_proportions
from innerloop.transformer.marks import MARK_SIZE, find_gap

KINDS = {"data": Data(), "centroid": Data(), "p": Data(MARK_SIZE)}


@define(prompt="points", x=Data("d"), mu=State("d"), id=Data("K"), **KINDS)
def cluster(me: Any, own: Any) -> None:
    choose = make_chooser(me, own)
    me.share = choose(lambda j: j.id)
    me.mean = choose(lambda j: j.mu)
    me.level = choose(lambda j: (own.prior @ j.id)[0] - own.precision * j.square)
    roots = torch.linspace(0.0, 1.0, own.knots, dtype=torch.float64)
    entropy = piecewise(me.share, lambda g: -torch.xlogy(g, g), roots**2)
    fit = own_total(
        lambda j: own.precision * dot(me.x, j.mean), "p", own.max_score, find_gap(own.n)
    )
    me.total = me.level + fit + entry_sum(entropy)
    move_means(me, own, lambda j: own.precision * (dot(me.mu, j.x) - me.square) - j.total)


cluster.answer(share)


class EMConstruction(ClusteringConstruction):
    """EM by softmax attention, in four blocks per step and two for the read-out."""

    definition = cluster
    source = "Yang 2025 (Transformers versus the EM algorithm)"
    cost = Cost("4k + 2", "2", "3d + 3K + 10", where="K = clusters")
    error = "2 bound tanh(e/4), e = K/(2m²), m + 1 knots"
    cases = (
        {"d": 2, "n": 25, "clusters": 4, "steps": 10},
        {"weights": torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), "noise": 1.5, "steps": 4},
        {"noise": 0.3, "steps": 3},
    )

    noise: float = parameter(1.0, "σ", least=1e-3, most=1e6)
    weights: Tensor | None = parameter(None, "π, K positive numbers with sum 1; equal if none")
    knots: int = parameter(4000, "knots of −γ log γ", least=2, most=100_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_proportions(self.weights, self.clusters)

    @cached_property
    def algorithm(self) -> EM:
        weights = resolve_proportions(self.weights, self.clusters)
        return EM(torch.tensor(self.noise, dtype=torch.float64), weights.log())

    @property
    def precision(self) -> float:
        return 1 / self.noise**2

    @property
    def prior(self) -> Tensor:
        return self.algorithm.log_weights.reshape(1, 1, -1)

    @property
    def max_score(self) -> float:
        """The largest value of |a⟨x, μ⟩|."""
        return self.precision * self.max_product

    @property
    def mean_reach(self) -> float:
        """The constant C of the M head (see Leak in the header of clustering.py)."""
        normaliser = self.max_level + math.log(self.clusters) + 1  # at least |λ|
        return self.find_reach(1.5 * self.max_score + normaliser)

    def tolerance(self, dtype: torch.dtype) -> float:
        # The gate that selects the own token adds and subtracts a number that grows with n.
        rounding = 8 * torch.finfo(dtype).eps * self.max_score / find_gap(self.n)
        level = self.clusters / (2 * (self.knots - 1) ** 2) + rounding
        return super().tolerance(dtype) + 2 * self.bound * math.tanh(level / 4)
