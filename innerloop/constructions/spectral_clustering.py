"""Spectral clustering of two Gaussian clouds, run by ReLU attention.

Algorithm  x ← x − mean, C = (1/n) Σ x xᵀ, v ← Cv/‖Cv‖ again and again, scores ⟨x, v⟩, labels ±1
Invariant  `x` holds the centred points; token j ≤ d holds column j of C in `cov` and e_j in `id`;
           every token holds v; `u`, `s`, `g`, `t`, `score`, `label` are 0
Proof      a head with score 1 and value −x takes the mean away; the next block lays out C; then
           power_iteration.py. Read-out: a signed pair with query x, key v and value one adds
           ⟨x_i, v⟩ to `score` of token i, and the MLP a ramp of it to `label`
Bound      v is off by ε = 3/2 δ² + 1/2 δ³ in length, not in direction; δ ≈ (3/32) ln² r for knots
           of ratio r: the error falls like knots⁻⁴. Everything else is exact, but that a ramp
           magnifies the rounding of scores
Holds for  n ≥ d ≥ 2 as built, entries up to 10⁴, and least ≤ ‖Cv‖ ≤ most, checked on the data
Source     yang2025.he.gmm, after the steps of its spectral algorithm
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.power_method import Vector, product
from innerloop.algorithms.spectral_clustering import SpectralClustering
from innerloop.constructions.base import Cost
from innerloop.constructions.spectral import SpectralConstruction, unit_vectors
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.principal_components import PCAProblem
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    make_signed_pair,
    piecewise_linear,
)

MAX_ENTRY = 1e4
"""Upper bound on the entries of the data: centring larger ones would lose digits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SpectralClusteringConstruction(SpectralConstruction[Vector]):
    """Four blocks per iteration, two before the first and one for the read-out."""

    source: ClassVar[str] = "Yang 2025 (Learning spectral methods by transformers), Theorem 3.2"
    cost: ClassVar[Cost] = Cost("4k + 3", "2", "5d + 6")
    error: ClassVar[str] = "3/2 δ² + 1/2 δ³, δ ≈ (3/32) ln² r"
    looped: ClassVar[bool] = True
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 2, "n": 2, "steps": 1},
        {"steps": 30, "knots": 40, "ramp": 1.0},
    )

    steps: int = parameter(20, "iterations", least=1, most=1_000)
    least: float = parameter(1e-2, "the least ‖Cv‖ allowed", least=1e-6)
    most: float = parameter(100.0, "the largest ‖Cv‖ allowed", least=1e-6, most=1e9)
    ramp: float = parameter(0.1, "scores beyond ± this are labelled ±1", least=1e-6, most=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d < 2:
            raise OutOfRangeError(f"{self.name} looks for a direction: d must be at least 2, got 1")

    @cached_property
    def layout(self) -> Layout:
        vectors = {"x": self.d, "id": self.d, "cov": self.d, "v": self.d, "u": self.d}
        return Layout(**vectors, s=(), g=(), t=(), one=(), score=(), label=())

    @cached_property
    def algorithm(self) -> SpectralClustering:
        return SpectralClustering(torch.tensor(self.ramp, dtype=torch.float64))

    def tolerance(self, dtype: torch.dtype) -> float:
        # No score is above √(n·most): the mean of their squares is ⟨v, Cv⟩.
        rounding = 16 * torch.finfo(dtype).eps * (self.n * self.most) ** 0.5 / self.ramp
        return super().tolerance(dtype) + rounding + self.blocks.error

    def distributions(self) -> list[BinaryMixture]:
        return [BinaryMixture(d=self.d, n=self.n)]

    def accept(self, problem: PCAProblem) -> None:
        self.check_sizes(problem, 1)
        if (largest := float(problem.x.abs().max())) > MAX_ENTRY:
            raise OutOfRangeError(
                f"{self.name} takes entries up to {MAX_ENTRY:g}, or centring them loses digits; "
                f"got {largest:.3g}: subtract a common offset"
            )
        covariance = self.algorithm.covariance(problem)
        states = self.algorithm.states(problem, self.steps - 1)
        self.check_lengths(product(covariance, state).norm(dim=-1) for state in states)

    def prompt(self, problem: PCAProblem) -> Tensor:
        return self.layout.make_tokens(
            x=problem.x, id=unit_vectors(problem), v=problem.start, one=1.0
        )

    def encode(self, problem: PCAProblem, state: Vector) -> Tensor:
        identity = unit_vectors(problem)
        return self.layout.make_tokens(
            x=self.algorithm.centre(problem),
            id=identity,
            cov=identity @ self.algorithm.covariance(problem),
            v=state.unsqueeze(-2),
            one=1.0,
        )

    def prologue(self) -> list[Block]:
        centre = Head({("one", "one"): 1.0}, {("x", "x"): -1.0})
        return [Block(self._attention(centre)), self.blocks.covariance()]

    def body(self, k: int) -> list[Block]:
        return self.blocks.iterate("v")

    def epilogue(self) -> list[Block]:
        scores = Head({("x", "v"): 1.0}, {("one", "score"): 1.0})
        ends = self.ramp * torch.tensor([-1.0, 1.0], dtype=torch.float64)
        label = piecewise_linear("score", "label", lambda score: score / self.ramp, ends)
        return [
            Block(self._attention(*make_signed_pair(scores)), MLP.from_pieces(self.layout, [label]))
        ]

    def _attention(self, *heads: Head) -> Attention:
        return Attention.from_heads(
            self.layout, heads, kind="relu", mask="all", normalisation="1/N"
        )

    def decode(self, problem: PCAProblem, stream: Tensor) -> Tensor:
        """Read score and label of each point."""
        read = [self.layout.read(stream, name) for name in ("score", "label")]
        return torch.stack(read, dim=-1)
