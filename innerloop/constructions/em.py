"""EM for a mixture of spherical Gaussians with known σ and weights, run by softmax attention.

Algorithm  γ_ik ∝ π_k e^{−‖x_i − μ_k‖²/2σ²},   μ_k ← Σ_i γ_ik x_i / Σ_i γ_ik
Invariant  centroid token k holds μ_k and log π_k; data token i holds its point and its mark p_i
Proof      see clustering.py: with a = 1/σ² and log π_k added to the scores, shares are γ, exactly.
           The M head needs log γ_ik up to what depends on k alone, a⟨μ_k, x_i⟩ − λ_i, where λ_i is
           the logarithm of the sum that normalises γ_i·; and λ_i = Σ_k γ_ik (l_ik − log γ_ik) with
           l_ik the scores. The E head also brings Σ_k γ_ik μ_k and Σ_k γ_ik (log π_k − a‖μ_k‖²/2),
           a signed pair of ReLU heads that see their own token only adds a⟨x_i, Σ_k γ_ik μ_k⟩,
           and an MLP gives −γ log γ on knots
Bound      on the m + 1 knots (j/m)² the function −γ log γ is too small by 1/(2m²) at most, and λ_i
           by e = K/(2m²): weights are off by factors within [1, eᵉ], and a mean of entries within
           `bound` by 2·bound·tanh(e/4). The error falls like knots⁻²
Holds for  entries within `bound` and up to n points. No cluster is empty: see algorithms/em.py
Source     yang2025.he.em-steps. A head with logits log γ needs a logarithm, which no block gives
           exactly, of numbers as small as e⁻⁴⁰⁰; λ is finite and smooth
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.em import EM, Means
from innerloop.constructions.base import Cost
from innerloop.constructions.clustering import ClusteringConstruction
from innerloop.parameters import parameter
from innerloop.problems.base import resolve_proportions
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    clear,
    gate_own_token,
    make_marks,
    make_signed_pair,
    piecewise_linear,
)
from innerloop.transformer.layout import Location
from innerloop.transformer.marks import MARK_SIZE


@dataclass(frozen=True, kw_only=True, eq=False)
class EMConstruction(ClusteringConstruction):
    """Four blocks per step, and two for the read-out."""

    source: ClassVar[str] = "Yang 2025 (Transformers versus the EM algorithm)"
    cost: ClassVar[Cost] = Cost("4k + 2", "2", "3d + 3K + 10", where="K = clusters")
    error: ClassVar[str] = "2 bound tanh(e/4), e = K/(2m²), m + 1 knots"
    looped: ClassVar[bool] = True
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
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

    @property
    def precision(self) -> float:
        return 1 / self.noise**2

    @property
    def extra_registers(self) -> dict[str, int | tuple[int, ...]]:
        return {"entropy": self.clusters, "level": (), "log_weight": (), "p": MARK_SIZE}

    def data_registers(self, problem: ClusteringProblem) -> dict[str, Tensor]:
        return {"p": make_marks(self.n)[: problem.n].to(problem.x)}

    def centroid_registers(self, state: Means) -> dict[str, Tensor]:
        return {"log_weight": self.algorithm.log_weights.to(state)}

    @cached_property
    def algorithm(self) -> EM:
        weights = resolve_proportions(self.weights, self.clusters)
        return EM(torch.tensor(self.noise, dtype=torch.float64), weights.log())

    def tolerance(self, dtype: torch.dtype) -> float:
        # The gate of `_own_product_attention` adds and subtracts a number that grows with n.
        rounding = 8 * torch.finfo(dtype).eps * self.own_gate[("p", "p")]
        level = self.clusters / (2 * (self.knots - 1) ** 2) + rounding
        return super().tolerance(dtype) + 2 * self.bound * math.tanh(level / 4)

    def share_attention(self) -> Attention:
        a = self.precision
        score = {("x", "mu"): a, ("one", "square"): -a, ("one", "log_weight"): 1.0}
        value = {
            ("id", "share"): 1.0,
            ("mu", "mean"): 1.0,
            ("square", "level"): -a,
            ("log_weight", "level"): 1.0,
        }
        return self.softmax_attention(score, value, "centroid", self.max_level)

    @property
    def max_level(self) -> float:
        """The largest |score| of the E head; |λ| is at most log K larger."""
        return 1.5 * self.max_score + float(self.algorithm.log_weights.abs().max())

    def body(self, k: int) -> list[Block]:
        roots = torch.linspace(0.0, 1.0, self.knots, dtype=torch.float64)
        entropy = piecewise_linear("share", "entropy", lambda g: -torch.xlogy(g, g), roots**2)
        minus = -torch.ones(1, self.clusters, dtype=torch.float64)
        score = {("mu", "x"): self.precision, ("one", "level"): -1.0, ("one", "entropy"): minus}
        max_score = self.max_score + self.max_level + math.log(self.clusters) + 1
        return [
            self.square_block(),
            Block(self.share_attention(), MLP.from_pieces(self.layout, [entropy, clear("square")])),
            Block(self._own_product_attention(), MLP.from_pieces(self.layout, [clear("mean")])),
            self.mean_block(score, max_score, "share", "entropy", "level"),
        ]

    @property
    def own_gate(self) -> dict[tuple[Location, Location], float]:
        """The gate that lets a data token attend to itself only."""
        return gate_own_token(self.max_score, self.n)

    def _own_product_attention(self) -> Attention:
        """level += a⟨x, mean⟩ on each data token."""
        head = Head({("x", "mean"): self.precision}, {("one", "level"): 1.0}, gate=self.own_gate)
        return Attention.from_heads(
            self.layout, make_signed_pair(head), kind="relu", mask="all", normalisation="1"
        )
