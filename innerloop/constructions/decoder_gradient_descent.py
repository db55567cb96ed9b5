"""Gradient descent from the decoder's alternating prompt to the answer, in one transformer.

Algorithm  w ← w − η ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Invariant  register `w` of every token holds the weights; even tokens hold x and y both, odd ones x
           alone; `pos`, `one`, `par` hold the prompt, `r`, `q` are 0
Proof      the prologue is `format-conversion`. The steps are those of `relu-gradient-descent` over
           N = 2n+1 tokens, with `par`, which is 1 on the paired tokens, for its flag. In the
           read-out the query is known by its position n+1: a token at position p loses R (n+1−p),
           as query and as key
Exact for  every d and η, one query, the built n, and |⟨w, x⟩| ≤ R on every token and step
Source     qliu2025.proposition-6, composed with gradient descent in the encoder's format
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.format_conversion import FormatConversion
from innerloop.algorithms.regression import Weights
from innerloop.constructions.base import Cost
from innerloop.constructions.format_conversion import pairing_blocks
from innerloop.constructions.relu_gradient_descent import ReLUGradientDescentConstruction
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import Block, Layout, sum_terms
from innerloop.transformer.head import Blocks


@dataclass(frozen=True, kw_only=True, eq=False)
class DecoderGradientDescentConstruction(ReLUGradientDescentConstruction):
    """The two blocks of `format-conversion`, then those of `relu-gradient-descent`."""

    source: ClassVar[str] = "Q. Liu 2025, Proposition 6 and the encoder format"
    cost: ClassVar[Cost] = Cost("k + 3", "2", "2d + 6")
    tolerances: ClassVar = {torch.float64: 1e-10}
    flag: ClassVar[str] = "par"

    n: int = parameter(20, "context examples; the weights depend on n", least=1, most=2_000)

    @property
    def token_count(self) -> int:
        return 2 * self.n + 1

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), w=self.d, r=(), q=(), pos=(), one=(), par=())

    def prompt(self, problem: RegressionProblem) -> Tensor:
        return self.layout.make_tokens(**problem.to_decoder_format())

    def encode(self, problem: RegressionProblem, state: Weights) -> Tensor:
        pairing, prompt = FormatConversion(), problem.to_decoder_format()
        paired = pairing.step(problem, pairing.init(problem), 0)
        return self.layout.make_tokens(**{**prompt, "x": paired.x}, w=state.unsqueeze(-2))

    def prologue(self) -> list[Block]:
        return pairing_blocks(self.layout)

    def query_gate(self) -> Blocks:
        key = {("one", "pos"): self.bound, ("one", "one"): -self.bound * (self.n + 1)}
        query = {("pos", "one"): self.bound, ("one", "one"): -self.bound * (self.n + 1)}
        return sum_terms(key, query)
