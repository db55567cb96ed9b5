"""Principal components by the power method with deflation, run by ReLU attention.

Algorithm  for each component, v ← Av/‖Av‖ again and again, then A ← A − ‖Av‖ v vᵀ
Invariant  token j ≤ d holds column j of A in `cov` and e_j in `id`; every token holds all vectors
           in `v`; `x` holds the data; `u`, `w`, `s`, `g`, `t` are 0
Proof      the first block, query id, key x, value x under 1/N: (1/n) Σ x ⟨x, e_j⟩ is column j of
           A. The others: see power_iteration.py. The answer is W̃₀ H W̃₁: `v` of the first token
Bound      vectors are off by ε = 3/2 δ² + 1/2 δ³ in length, not in direction, and entries of A by
           4 ε ‖Av‖; δ ≈ (3/32) ln² r for knots of ratio r: the error falls like knots⁻⁴
Holds for  n ≥ d as built, components ≤ d, and least ≤ ‖Av‖ ≤ most, checked on the data
Source     qliu2025.theorem-7 and its proof, with: a key of the deflation that reads the identity,
           values of the first layer that map x to the covariance alone, differences inside pairs,
           vectors that replace what they came from, starting vectors on every token, and knots on
           ‖u‖² in place of heads over the sphere, whose number is exponential in d
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.power_method import DeflationState, PowerMethod
from innerloop.constructions.base import Cost
from innerloop.constructions.spectral import SpectralConstruction, unit_vectors
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.principal_components import PCAProblem, PrincipalComponents
from innerloop.transformer import Block, Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class PCAConstruction(SpectralConstruction[DeflationState]):
    """Four blocks per iteration, five per component, one for the covariance."""

    source: ClassVar[str] = "Q. Liu 2025, Theorem 7"
    cost: ClassVar[Cost] = Cost(
        "4k + 5c + 1",
        "3",
        "cd + 5d + 4",
        "2τ + 4c + 1 layers, τ = k/c, and λ₁^d C/ε² heads",
        where="c = components",
    )
    exact: ClassVar[bool] = False
    error: ClassVar[str] = "6 δ² max(1, most), δ ≈ (3/32) ln² r"
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 1, "n": 3, "steps": 2, "components": 1},
        {"d": 3, "n": 3, "steps": 3, "components": 3},
        {"d": 6, "n": 25, "steps": 25, "components": 3},
        {"knots": 30, "most": 30.0, "steps": 9},
    )

    steps: int = parameter(40, "iterations of all components together", least=1, most=1_000)
    components: int = parameter(2, "number of eigenvectors", least=1, most=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components > min(self.d, self.steps):
            raise OutOfRangeError(
                f"components must be at most d={self.d}, with an iteration each of "
                f"steps={self.steps}; got components={self.components}"
            )

    @cached_property
    def layout(self) -> Layout:
        vectors = {"x": self.d, "id": self.d, "cov": self.d, "v": (self.components, self.d)}
        return Layout(**vectors, u=self.d, w=self.d, s=(), g=(), t=(), one=())

    @cached_property
    def algorithm(self) -> PowerMethod:
        return PowerMethod(self.steps)

    def tolerance(self, dtype: torch.dtype) -> float:
        return super().tolerance(dtype) + 4 * self.blocks.error * max(1.0, self.most)

    def distributions(self) -> list[PrincipalComponents]:
        return [PrincipalComponents(d=self.d, n=self.n, components=self.components)]

    def accept(self, problem: PCAProblem) -> None:
        self.check_sizes(problem, self.components)
        self.check_lengths(self.algorithm.lengths(problem))

    def prompt(self, problem: PCAProblem) -> Tensor:
        return self.layout.make_tokens(
            x=problem.x, id=unit_vectors(problem), v=problem.start.unsqueeze(-3), one=1.0
        )

    def encode(self, problem: PCAProblem, state: DeflationState) -> Tensor:
        identity = unit_vectors(problem)
        return self.layout.make_tokens(
            x=problem.x,
            id=identity,
            cov=identity @ state.matrix.mT,
            v=state.vectors.unsqueeze(-3),
            one=1.0,
        )

    def prologue(self) -> list[Block]:
        return [self.blocks.covariance()]

    def body(self, k: int) -> list[Block]:
        turn, last = self.algorithm.component_at(self.components, k)
        v = self.layout["v"][turn]
        return [*self.blocks.iterate(v), *(self.blocks.deflate(v) if last else ())]

    def decode(self, problem: PCAProblem, stream: Tensor) -> Tensor:
        """Compute W̃₀ H W̃₁: read the vectors from the first token."""
        return self.layout.read(stream, "v")[..., 0, :, :]
