"""GD++, gradient steps on covariates improved at every layer, run exactly by linear attention.

Algorithm  w ← w − Tᵀ A T ∇R(w),   T ← T − B T G Tᵀ Aᵀ T,   G = (1/n) Σᵢ xᵢ xᵢᵀ
Invariant  register `x` holds T x of every token; `y` holds yᵢ − ⟨w, xᵢ⟩ on context token i and
           −⟨w, x⟩ on a query, x being the token's original covariates
Proof      the score of query j and key i is −(T xⱼ)ᵀ A (T xᵢ). Value y→y adds
           −(1/n) Σᵢ (T xⱼ)ᵀ A (T xᵢ)(yᵢ − ⟨w, xᵢ⟩) = −⟨w_next − w, xⱼ⟩ to `y` of token j; value
           x→x by B adds −(1/n) Σᵢ B T xᵢ (T xᵢ)ᵀ Aᵀ (T xⱼ) = (T_next − T) xⱼ to `x` of token j
Exact for  every n, d, number of queries, A and B, symmetric or not
Source     ahn2023.gdpp, eq. (13); its Q holds −Aᵀ, its P holds B
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.gd_plus_plus import GDPlusPlus, Transformed
from innerloop.constructions.regression import Matrices, RegressionConstruction, matrices
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import Attention, Block, Head, Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearGDPlusPlus(RegressionConstruction):
    """One block with one head for each step."""

    source: ClassVar[str] = "Ahn et al. 2023, eq. (13)"
    tolerances: ClassVar = {torch.float64: 1e-10, torch.float32: 1e-4}

    step_size: float = parameter(0.1, "scale of the preconditioners")
    preconditioners: Matrices = parameter("random", "A of each step: d×d, or steps×d×d, or a word")
    transform_size: float = parameter(0.5, "scale of the transforms")
    transforms: Matrices = parameter("random", "B of each step: d×d, or steps×d×d, or a word")

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=())

    @cached_property
    def algorithm(self) -> GDPlusPlus:
        size, steps, d = self.step_size, self.steps, self.d
        return GDPlusPlus(
            preconditioners=matrices(
                self.preconditioners, "preconditioners", size, steps, d, seed=1
            ),
            transforms=matrices(
                self.transforms, "transforms", self.transform_size, steps, d, seed=2
            ),
        )

    def prompt(self, problem: RegressionProblem) -> Tensor:
        prompt = problem.encoder_format()
        return self.layout.tokens(x=prompt["x"], y=prompt["y"])

    def encode(self, problem: RegressionProblem, state: Transformed) -> Tensor:
        prompt = problem.encoder_format()
        fitted = (prompt["x"] @ state.weights.unsqueeze(-1)).squeeze(-1)
        return self.layout.tokens(x=prompt["x"] @ state.transform.mT, y=prompt["y"] - fitted)

    def body(self, k: int) -> list[Block]:
        a, b = self.algorithm.preconditioners[k], self.algorithm.transforms[k]
        head = Head(score={("x", "x"): -a}, value={("y", "y"): 1.0, ("x", "x"): b})
        return [Block(Attention.of(self.layout, [head]))]

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        return -self.at_queries(problem, stream, "y")
