"""Newton's iteration for least squares, run exactly by ReLU attention over all tokens.

Algorithm  M ← 2M − M S M,   S = XᵀX,   M₀ = αS,   ŵ = M Xᵀy
Invariant  register `m` of every token holds M x; `x`, `xk`, `y` hold the prompt, `yhat` is 0
Proof      as for `newton`, each head a signed pair, σ(s)·v − σ(−s)·v = s·v. No mask: keys read
           `xk`, the copy of x that is 0 on queries, so that a query scores 0 as a key
Exact for  what `newton` is exact for
Source     yang2025.fu.newton. The sign inside the pair matters: σ(s) + σ(−s) would be |s|
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.constructions.base import Cost
from innerloop.constructions.newton import NewtonConstruction
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import Attention, Head, Layout, make_signed_pair


@dataclass(frozen=True, kw_only=True, eq=False)
class ReLUNewtonConstruction(NewtonConstruction):
    """k + 2 blocks: two heads each, and an MLP of 2d hidden units in each step."""

    source: ClassVar[str] = "Yang 2025, first paper (Fu et al. 2023)"
    cost: ClassVar[Cost] = Cost("k + 2", "2", "3d + 2", "k + O(1) layers, width O(d)")
    key_register: ClassVar[str] = "xk"

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, xk=self.d, m=self.d, y=(), yhat=())

    def data_registers(self, problem: RegressionProblem) -> dict[str, Tensor]:
        keyed = torch.cat([problem.x, torch.zeros_like(problem.x_query)], dim=-2)
        return {**super().data_registers(problem), "xk": keyed}

    def _attention(self, head: Head) -> Attention:
        return Attention.from_heads(
            self.layout, make_signed_pair(head), kind="relu", mask="all", normalisation="1"
        )
