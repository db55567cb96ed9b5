"""Newton's iteration for least squares, run exactly by linear attention, one block per step.

Algorithm  M ← 2M − M S M,   S = XᵀX,   M₀ = αS,   ŵ = M Xᵀy
Invariant  register `m` of every token holds M x; `x`, `y` hold the prompt, `yhat` is 0
Proof      prologue: α Σⱼ xⱼ ⟨xᵢ, xⱼ⟩ = αS xᵢ into `m`. Step: attention adds −½ Σⱼ mⱼ ⟨mᵢ, xⱼ⟩ =
           −½ M S M xᵢ to `m`, then the MLP doubles `m`. Epilogue: Σⱼ ⟨m, xⱼ⟩ yⱼ = ⟨ŵ, x⟩ into
           `yhat`
Exact for  every n, d and number of queries. Rounding doubles at every step until the iteration has
           converged, and where S is singular it never stops: up to 20 steps, or n ≥ 2d
Source     yang2025.fu.newton. The query reads m and the key x; the other way round is the same in
           exact arithmetic, but doubles its rounding at every step for ever. α must stay below
           2/λmax(S)², which is the edge that α = 2/‖SSᵀ‖ sits on
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.newton import Inverse, Newton
from innerloop.constructions.regression import RegressionConstruction
from innerloop.errors import OutOfRange
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import MLP, Attention, Block, Head, Layout, affine

SAFE_STEPS = 20
"""Steps for which rounding stays below 1e-10 whatever S is: it grows like 2ᵏ·1e-16 (1e-12 seen)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearNewton(RegressionConstruction):
    """k + 2 blocks: one head each, and an MLP of 2d hidden units in each step."""

    source: ClassVar[str] = "Yang 2025, first paper (Fu et al. 2023)"
    keyed: ClassVar[str] = "x"
    """The register that keys read."""

    alpha: float | None = parameter(
        None, "α; none is 1/(√n + √d + 6)⁴, below 1/λ² for row covariances up to I", least=0
    )

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, m=self.d, y=(), yhat=())

    @cached_property
    def algorithm(self) -> Newton:
        # λmax(XᵀX) ≤ (√n + √d + t)² but with probability exp(−t²/2): an a-priori bound, since
        # weights may not depend on the data.
        bound = (self.n**0.5 + self.d**0.5 + 6.0) ** 2
        alpha = bound**-2 if self.alpha is None else self.alpha
        return Newton(torch.tensor(alpha, dtype=torch.float64))

    def accept(self, problem: RegressionProblem) -> None:
        super().accept(problem)
        if problem.n < 2 * self.d and self.steps > SAFE_STEPS:
            raise OutOfRange(
                f"{self.name} with n={problem.n} < 2d={2 * self.d} is exact to {SAFE_STEPS} steps, "
                f"got {self.steps}: take fewer steps or more examples"
            )

    def registers(self, problem: RegressionProblem) -> dict[str, Tensor]:
        """The data in their registers."""
        prompt = problem.encoder_format()
        return {"x": prompt["x"], "y": prompt["y"]}

    def prompt(self, problem: RegressionProblem) -> Tensor:
        return self.layout.tokens(**self.registers(problem))

    def encode(self, problem: RegressionProblem, state: Inverse) -> Tensor:
        registers = self.registers(problem)
        return self.layout.tokens(**registers, m=registers["x"] @ state.mT)

    def prologue(self) -> list[Block]:
        alpha = float(self.algorithm.alpha)
        return [Block(self._attention(Head({("x", self.keyed): 1.0}, {("x", "m"): alpha})))]

    def body(self, k: int) -> list[Block]:
        head = Head({("m", self.keyed): 1.0}, {("m", "m"): -0.5})
        return [Block(self._attention(head), MLP.of(self.layout, [affine("m", "m")]))]

    def epilogue(self) -> list[Block]:
        head = Head({("m", self.keyed): 1.0}, {("y", "yhat"): 1.0})
        return [Block(self._attention(head))]

    def _attention(self, head: Head) -> Attention:
        return Attention.of(self.layout, [head], normalisation="1")

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        return self.at_queries(problem, stream, "yhat")
