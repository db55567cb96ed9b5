"""Gradient descent on least squares, run exactly by ReLU attention on the encoder prompt.

Algorithm  w ← w − η ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Invariant  register `w` of every token holds the weights; `x`, `y`, `one`, `t` hold the prompt
Proof      step: a signed pair with score ⟨w, xⱼ⟩ − yⱼ − R(1 − tⱼ) is linear on context keys and
           silent on the query's while |⟨w, x⟩| ≤ R; its value −η((n+1)/n) xⱼ under 1/N, N = n+1,
           adds −η ∇R(w). Read-out: a signed pair with score ⟨w, xⱼ⟩ − R tⱼ − R tᵢ goes only from
           the query to the query, and adds ⟨w, x⟩ to its `y`
Exact for  every d and η, one query, the built n, and |⟨w, x⟩| ≤ R on every token and step
Source     encoder prompt, 1/N, clipped read-out and signed pairs of Q. Liu's lecture
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.regression import Weights
from innerloop.constructions.base import Cost
from innerloop.constructions.regression import RegressionConstruction
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.transformer import Attention, Block, Head, Layout, gate_keys, make_signed_pair
from innerloop.transformer.head import Blocks


@dataclass(frozen=True, kw_only=True, eq=False)
class ReLUGradientDescentConstruction(RegressionConstruction[Weights]):
    """One block with two heads per step, and one for the read-out."""

    source: ClassVar[str] = "Q. Liu 2025, encoder format, Definition of attention and read-out"
    cost: ClassVar[Cost] = Cost("k + 1", "2", "2d + 3")
    tolerances: ClassVar = {torch.float64: 1e-10, torch.float32: 2e-5}

    flag: ClassVar[str] = "t"
    """The register that is 1 on context tokens."""

    n: int = parameter(20, "context examples; the weights depend on n", least=1, most=10_000)
    step_size: float = parameter(0.1, "η")
    bound: float = parameter(100.0, "R, the largest |⟨w, x⟩| allowed", least=1e-6, most=1e6)

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), w=self.d, one=(), t=())

    @cached_property
    def algorithm(self) -> GradientDescent:
        return GradientDescent(torch.tensor([self.step_size], dtype=torch.float64))

    def distributions(self) -> list[LinearRegression]:
        return [replace(super().distributions()[0], queries=1)]

    def tolerance(self, dtype: torch.dtype) -> float:
        """Allow for rounding: in float32 the gate's −R + R costs R times the precision."""
        return super().tolerance(dtype) * max(1.0, self.bound / 100 if dtype.itemsize < 8 else 1.0)

    def accept(self, problem: RegressionProblem) -> None:
        super().accept(problem)
        if problem.n != self.n:
            raise OutOfRangeError(f"{self.name} was built for n={self.n}, got n={problem.n}")
        if problem.queries != 1:
            raise OutOfRangeError(f"{self.name} reads out one query, got {problem.queries}")

    @property
    def token_count(self) -> int:
        """N, the number of tokens in a prompt."""
        return self.n + 1

    def prompt(self, problem: RegressionProblem) -> Tensor:
        return self.layout.make_tokens(**problem.to_encoder_format())

    def encode(self, problem: RegressionProblem, state: Weights) -> Tensor:
        return self.layout.make_tokens(**problem.to_encoder_format(), w=state.unsqueeze(-2))

    def body(self, k: int) -> list[Block]:
        rate = self.step_size * self.token_count / self.n
        residual = Head(
            score={("w", "x"): 1.0, ("one", "y"): -1.0},
            value={("x", "w"): -rate},
            gate=gate_keys(self.flag, self.bound),
        )
        return [self._block(residual)]

    def epilogue(self) -> list[Block]:
        answer = Head(
            score={("w", "x"): 1.0},
            value={("one", "y"): float(self.token_count)},
            gate=self.query_gate(),
        )
        return [self._block(answer)]

    def query_gate(self) -> Blocks:
        """Return a gate that is open only from the query token to itself."""
        return {("one", "t"): -self.bound, ("t", "one"): -self.bound}

    def _block(self, head: Head) -> Block:
        heads = make_signed_pair(head)
        return Block(
            Attention.from_heads(self.layout, heads, kind="relu", mask="all", normalisation="1/N")
        )

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        return self.layout.read(stream, "y")[..., -1:].clamp(-self.bound, self.bound)

    def usage(self, stream: Tensor) -> float:
        w, x = (self.layout.read(stream, name) for name in ("w", "x"))
        return float((x @ w[..., -1:, :].mT).abs().max()) / self.bound
