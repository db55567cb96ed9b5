"""Preconditioned gradient descent on least squares, run exactly by linear attention.

Algorithm  w ← w − A ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²,   a matrix A for each step
Invariant  register `y` holds yᵢ − ⟨w, xᵢ⟩ on context token i, −⟨w, x⟩ on a query
Proof      the head adds −(1/n) Σᵢ (xⱼᵀA xᵢ)(yᵢ − ⟨w, xᵢ⟩) = −⟨w_next − w, xⱼ⟩ to `y` of token j
Exact for  every n, d, number of queries and A, symmetric or not
Source     ahn2023.lemma-2; its Q holds −Aᵀ (there A is negative definite for descent)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.preconditioned_gradient_descent import PreconditionedGradientDescent
from innerloop.algorithms.regression import Weights
from innerloop.constructions.base import Cost
from innerloop.constructions.regression import Matrices, RegressionConstruction, make_matrices
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import Attention, Block, Head, Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class PreconditionedGradientDescentConstruction(RegressionConstruction[Weights]):
    """One block with one head per step."""

    source: ClassVar[str] = "Ahn et al. 2023, Lemma 2, eq. (9)"
    cost: ClassVar[Cost] = Cost("k", "1", "d + 1", "k layers")
    tolerances: ClassVar = {torch.float64: 1e-10, torch.float32: 5e-6}

    step_size: float | None = parameter(None, "scale of A if it is not explicit; 0.1 if none")
    preconditioners: Matrices = parameter(
        "random", "A of each step: d×d, steps×d×d, random or identity"
    )

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=())

    @cached_property
    def algorithm(self) -> PreconditionedGradientDescent:
        return PreconditionedGradientDescent(self._make_preconditioners(self.steps))

    def _make_preconditioners(self, count: int) -> Tensor:
        given, scale = self.preconditioners, self.step_size
        return make_matrices(given, scale, 0.1, "preconditioners", count, self.d, seed=1)

    def prompt(self, problem: RegressionProblem) -> Tensor:
        prompt = problem.to_encoder_format()
        return self.layout.make_tokens(x=prompt["x"], y=prompt["y"])

    def encode(self, problem: RegressionProblem, state: Weights) -> Tensor:
        prompt = problem.to_encoder_format()
        fitted = (prompt["x"] @ state.unsqueeze(-1)).squeeze(-1)
        return self.layout.make_tokens(x=prompt["x"], y=prompt["y"] - fitted)

    def body(self, k: int) -> list[Block]:
        a = self.algorithm.preconditioners[k]
        head = Head(score={("x", "x"): -a}, value={("y", "y"): 1.0})
        return [Block(Attention.from_heads(self.layout, [head]))]

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        return -self.read_queries(problem, stream, "y")
