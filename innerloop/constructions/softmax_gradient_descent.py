"""Gradient descent on a risk of a linear model by softmax attention, with four blocks per step.

Algorithm  w ← Proj( w − (η/n) Σᵢ ℓ'(⟨w, xᵢ⟩, yᵢ) xᵢ ) onto the box |w| ≤ C, for the squared, the
           logistic and Huber's loss; algorithms/projected_gradient_descent.py
Invariant  every token holds w; `x`, `y`, `one`, `t` hold the prompt, t = 0 on the query; `u`, `g`
           and `p` are 0: the stream [x; y; w; 0; 1; t] that the source prints after 4l layers
Proof      block 1: an MLP adds u = Σ_j s(w_j + x_j) − s(w_j − x_j), s(z) = z²/4 on knots, which is
           ⟨w, x⟩. Block 2: an MLP adds g = ℓ'(u, y), exactly by ReLUs (the logistic function on
           knots), and clears u. Block 3: an MLP adds p_j = s(g + x_j) − s(g − x_j), which is g x_j,
           and clears g. Block 4: a softmax head whose scores are equal on all context tokens, and
           lower by L on the query, adds −η times the mean of p over the context to w; its MLP
           clips w and clears p. Read-out: block 1 again, u of the query
Bound      z²/4 on knots at a distance h is at most h²/16 too large, a product has an error of at
           most e = h²/16, and the logistic function of e_σ = 0.0963 h²/8. With Lipschitz constant λ
           of ℓ', a step has an error of η(e₃ + B(λ d e₁ + e_σ)) on each entry, and the read-out of
           d e₁. The weight of the query in the softmax is below e^{−L}. The error is proportional
           to knots⁻²
Holds for  |x| ≤ `bound` and |y| ≤ `labels` on every entry, any n up to the built one, one query
Source     yang2025.wu.theorem-6 states that such a transformer exists, by universal approximation.
           It consists only of softmax attention and ReLU MLPs with residual connections, so blocks
           as in GPT could run it, if they had no LayerNorm
LayerNorm  would divide the input of a block by the standard deviation of the token. On a stream
           (h, −h, K, −K) the mean is 0 and the standard deviation √(2(K² + |h|²)/width), so a block
           would read h times a known number and a factor (1 + |h|²/K²)^(−1/2). This takes twice the
           width and two constants, with a relative error of |h|²/2K² of each entry; every output is
           written twice, the second time negated
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.projected_gradient_descent import (
    HUBER_THRESHOLD,
    ProjectedGradientDescent,
    RiskName,
)
from innerloop.algorithms.regression import Weights
from innerloop.constructions.base import Cost
from innerloop.constructions.regression import RegressionConstruction
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    Units,
    affine,
    clear,
    clip,
    gate_keys,
    piecewise_linear,
)
from innerloop.transformer.pieces import Piece

LEAK = 50.0
"""The amount L by which the query's score is lowered: e⁻⁵⁰ is below the precision of float64."""
LOGISTIC_CURVATURE = 1 / (6 * math.sqrt(3))
"""The largest |σ''|, at u = ±log(2 + √3)."""


class SoftmaxGradientDescentConstruction(RegressionConstruction[Weights]):
    """Gradient descent by softmax attention: three MLPs and a head per step, an MLP to read out."""

    source = "Yang 2025, second paper, Theorem 6 (Wu et al. 2024)"
    cost = Cost("4k + 1", "1", "3d + 5", "4k layers; heads and width not given")
    exact = False
    error = "η(e₃ + B(λ d e₁ + e_σ)), each e falling like knots⁻²"
    looped = True
    one_query = True
    tolerances = {torch.float64: 1e-9}
    cases = (
        {"d": 1, "n": 6, "steps": 5, "loss": "squared", "step_size": 0.2},
        {"d": 3, "n": 9, "steps": 4, "loss": "huber", "step_size": 0.4},
        {"d": 2, "n": 8, "steps": 3, "loss": "squared", "box": 0.3, "step_size": 0.5, "knots": 300},
    )

    d: int = parameter(2, "features", least=1, most=16)
    n: int = parameter(12, "context examples", least=1, most=1000)
    loss: RiskName = parameter("logistic", "ℓ: squared, logistic or huber")
    step_size: float = parameter(0.1, "η", least=0)
    box: float = parameter(5.0, "C, the largest |w| of the projection", least=1e-6, most=1e3)
    bound: float = parameter(8.0, "B, the largest |entry| of x", least=1e-6, most=1e3)
    labels: float = parameter(25.0, "the largest |y|", least=1e-6, most=1e4)
    knots: int = parameter(2000, "knots of each function", least=2, most=20_000)

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), w=self.d, u=(), g=(), p=self.d, one=(), t=())

    @cached_property
    def algorithm(self) -> ProjectedGradientDescent:
        size = torch.tensor([self.step_size], dtype=torch.float64)
        return ProjectedGradientDescent(
            size, torch.tensor(self.box, dtype=torch.float64), self.loss
        )

    def draw_further(
        self, count: int, generator: torch.Generator, dtype: torch.dtype
    ) -> list[RegressionProblem]:
        """Draw large features with extreme labels, for which w reaches the boundary of the box."""
        drawn = self.distributions()[0].sample(count, generator=generator, dtype=dtype)
        largest = torch.cat([drawn.x, drawn.x_query], dim=-2).abs().amax(dim=(-2, -1), keepdim=True)
        scale = 0.9 * self.bound / largest
        labels = 0.9 * self.labels * torch.sign(drawn.y)
        return [replace(drawn, x=scale * drawn.x, x_query=scale * drawn.x_query, y=labels)]

    @property
    def reach(self) -> float:
        """The largest value of |⟨w, x⟩|."""
        return self.d * self.box * self.bound

    @property
    def slope_reach(self) -> float:
        """The largest value of |ℓ'|."""
        most = {"squared": self.reach + self.labels, "logistic": 1 + self.labels}
        return most.get(self.loss, HUBER_THRESHOLD)

    def knot_error(self, reach: float) -> float:
        """Return h²/16 for knots on [−reach, reach]: the error of a product by squares."""
        return (2 * reach / (self.knots - 1)) ** 2 / 16

    @property
    def product_bound(self) -> float:
        """The largest error of u, which is also that of the read-out."""
        return self.d * self.knot_error(self.box + self.bound)

    @property
    def step_bound(self) -> float:
        """The largest error of a step on an entry of w, without rounding."""
        function = 0.0
        if self.loss == "logistic":
            function = 2 * self.knot_error(self.reach) * LOGISTIC_CURVATURE
        lipschitz = 0.25 if self.loss == "logistic" else 1.0
        product = self.knot_error(self.slope_reach + self.bound)
        slope = lipschitz * self.product_bound + function
        return self.step_size * (product + self.bound * slope)

    def tolerance(self, dtype: torch.dtype) -> float:
        """Return the larger bound, of a step or of the read-out, plus rounding."""
        return super().tolerance(dtype) + max(self.step_bound, self.product_bound)

    def accept(self, problem: RegressionProblem) -> None:
        super().accept(problem)
        if problem.n > self.n:
            raise OutOfRangeError(
                f"{self.name} was built for n up to {self.n}, got {problem.n}: "
                "build it with a larger n"
            )

    def prompt(self, problem: RegressionProblem) -> Tensor:
        return self.layout.make_tokens(**problem.to_encoder_format())

    def encode(self, problem: RegressionProblem, state: Weights) -> Tensor:
        return self.layout.make_tokens(**problem.to_encoder_format(), w=state.unsqueeze(-2))

    def body(self, k: int) -> list[Block]:
        gate = gate_keys("t", LEAK)
        mean = Head({}, {("p", "w"): -self.step_size}, gate=gate)
        attention = Attention.from_heads(
            self.layout, [mean], kind="softmax", mask="all", normalisation="1"
        )
        return [
            self.product_block(),
            self._mlp(*self.slope_pieces(), clear("u")),
            self._mlp(self.multiply("g", "p"), clear("g")),
            Block(attention, MLP.from_pieces(self.layout, [clip("w", self.box), clear("p")])),
        ]

    def epilogue(self) -> list[Block]:
        return [self.product_block()]

    def product_block(self) -> Block:
        """Return the block u += ⟨w, x⟩."""
        return self._mlp(self.multiply("w", "u"))

    def _mlp(self, *pieces: Piece) -> Block:
        return Block(mlp=MLP.from_pieces(self.layout, list(pieces)))

    def slope_pieces(self) -> list[Piece]:
        """Return the pieces of g += ℓ'(u, y)."""
        if self.loss == "logistic":
            knots = torch.linspace(-self.reach, self.reach, self.knots, dtype=torch.float64)
            return [affine("y", "g", -1.0), piecewise_linear("u", "g", torch.sigmoid, knots)]
        if self.loss == "squared":
            return [affine("u", "g"), affine("y", "g", -1.0)]
        signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
        beyond = Units(
            {"u": signs, "y": -signs},
            torch.full((2,), -HUBER_THRESHOLD, dtype=torch.float64),
            {"g": -signs.mT},
            "g −= the part of u − y beyond ±1",
        )
        return [affine("u", "g"), affine("y", "g", -1.0), beyond]

    def multiply(self, factor: str, target: str) -> Piece:
        """Return the piece target += factor · x.

        The product is entry by entry if the target has d entries, else their sum. A factor of one
        entry multiplies every entry of x.
        """
        single = self.layout[factor].size == 1
        reach = (self.slope_reach if factor == "g" else self.box) + self.bound
        hinges = square_hinges(reach, self.knots)
        eye = torch.eye(self.d, dtype=torch.float64)
        ones = torch.ones(self.d, 1, dtype=torch.float64)
        units = len(hinges.slope)

        def repeat(rows: Tensor, sign: float) -> Tensor:
            return torch.cat([hinges.slope[:, None] * row * sign for row in rows.unsqueeze(1)])

        plus = {factor: repeat(ones if single else eye, 1.0), "x": repeat(eye, 1.0)}
        minus = {factor: repeat(ones if single else eye, 1.0), "x": repeat(eye, -1.0)}
        reads = {name: torch.cat([plus[name], minus[name]]) for name in plus}
        one = torch.zeros(self.d, self.d * units, dtype=torch.float64)
        for j in range(self.d):
            one[j, j * units : (j + 1) * units] = hinges.weight
        writes = torch.cat([one, -one], dim=1)
        if self.layout[target].size == 1:
            writes = writes.sum(dim=0, keepdim=True)
        note = f"{target} += {factor} · x by squares on {self.knots} knots"
        return Units(reads, hinges.bias.repeat(2 * self.d), {target: writes}, note)

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        return self.layout.read(stream, "u")[..., -1:]

    def usage(self, stream: Tensor) -> float:
        limits = {"x": self.bound, "y": self.labels, "w": self.box * (1 + 1e-9)}
        return max(
            float(self.layout.read(stream, name).abs().max()) / limit
            for name, limit in limits.items()
        )


@dataclass(frozen=True)
class Hinges:
    """A scalar function as a sum of ReLUs: Σ weight · σ(slope · z + bias)."""

    slope: Float[Tensor, " units"]
    bias: Float[Tensor, " units"]
    weight: Float[Tensor, " units"]


def square_hinges(reach: float, knots: int) -> Hinges:
    """Return hinges that equal z²/4 − c at the knots and are linear between them.

    The hinges start in the middle, at z = 0, so that no large terms cancel. The constant c is the
    same for both squares of a product, so it cancels.
    """
    points = torch.linspace(0.0, reach, knots // 2 + 1, dtype=torch.float64)
    slopes = (points[1:] ** 2 - points[:-1] ** 2) / 4 / points.diff()
    weight = torch.diff(slopes, prepend=torch.zeros(1, dtype=torch.float64))
    bias, ones = -points[:-1], torch.ones(len(weight), dtype=torch.float64)
    return Hinges(torch.cat([ones, -ones]), torch.cat([bias, bias]), torch.cat([weight, weight]))
