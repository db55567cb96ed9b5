"""Gradient descent with momentum, run exactly by linear attention.

Algorithm  v ← βv − η∇R(w),   w ← w + v,   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Invariant  register `y` holds yᵢ − ⟨w, xᵢ⟩ on context token i, −⟨w, x⟩ on a query; register `p`
           holds −β⟨v, x⟩ on every token
Proof      the head adds −(η/n) Σᵢ ⟨xⱼ, xᵢ⟩(yᵢ − ⟨w, xᵢ⟩) to `p`, which is then −⟨v_next, xⱼ⟩;
           the MLP adds that to `y`, and multiplies `p` by β
Exact for  every n, d, number of queries, η and β
Source     Polyak 1964; the construction is this package's own
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from heavy_ball.algorithm import HeavyBall, Motion
from innerloop import Construction, Cost, LinearRegression, RegressionProblem, parameter
from innerloop.errors import OutOfRangeError
from innerloop.transformer import MLP, Attention, Block, Head, Layout, affine


class HeavyBallConstruction(Construction[RegressionProblem, Motion]):
    """One head and one MLP per step."""

    source = "Polyak 1964"
    cost = Cost("k", "1", "d + 2")
    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "context examples it is certified on", least=1, most=10_000)
    step_size: float = parameter(0.2, "η")
    momentum: float = parameter(0.5, "β", least=0, most=1)

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), p=())

    @cached_property
    def algorithm(self) -> HeavyBall:
        numbers = torch.tensor([self.step_size, self.momentum], dtype=torch.float64)
        return HeavyBall(*numbers)

    def distributions(self) -> list[LinearRegression]:
        sizes = (self.n, self.n // 2 + 1)
        return [LinearRegression(d=self.d, n=n, noise=0.5, queries=2) for n in sizes]

    def accept(self, problem: RegressionProblem) -> None:
        if problem.d != self.d:
            raise OutOfRangeError(f"{self.name} was built for d={self.d}, got d={problem.d}")

    def context_length(self, problem: RegressionProblem) -> int:
        return problem.n

    def prompt(self, problem: RegressionProblem) -> Tensor:
        tokens = problem.to_encoder_format()
        return self.layout.make_tokens(x=tokens["x"], y=tokens["y"])

    def encode(self, problem: RegressionProblem, state: Motion) -> Tensor:
        tokens = problem.to_encoder_format()
        fitted, moved = ((tokens["x"] @ part.unsqueeze(-1)).squeeze(-1) for part in state)
        y, p = tokens["y"] - fitted, -self.momentum * moved
        return self.layout.make_tokens(x=tokens["x"], y=y, p=p)

    def body(self, k: int) -> list[Block]:
        head = Head(score={("x", "x"): -self.step_size}, value={("y", "p"): 1.0})
        pieces = [affine("p", "y"), affine("p", "p", self.momentum - 1.0)]
        return [
            Block(Attention.from_heads(self.layout, [head]), MLP.from_pieces(self.layout, pieces))
        ]

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        return -self.layout.read(stream, "y")[..., problem.n :]
