"""Gradient descent on an N-layer network with smooth activation, by ReLU attention on knots.

Algorithm  V ← Proj(V − η∇L_n(V)), the box |V| ≤ C; p_0 = x, p_j = r(V_j p_{j−1}), r in C⁴;
           s_N = u(p_N − y) r'(a_N), s_j = (V_{j+1}ᵀ s_{j+1}) r'(a_j), a_j = V_j p_{j−1};
           u(e) = e for the loss e²/2, u(e) = tanh(e) for log cosh e, both Lipschitz and C⁴
Weights    every key holds V, so that heads average what depends on the query token alone. A head
           per unit and knot t adds a multiple of relu(⟨p_{j−1}, V_j[k]⟩ − t): lines between the
           values of r, and of r', at knots. Products are differences of squares on knots, 4ab =
           (a + b)² − (a − b)², whose first knots cancel; a large multiple of `query` closes them at
           the query. The update is linear attention, the projection an MLP with 2 units a weight
Layers     of a step: N forward, 1 for the product that begins the way back (2 with u = tanh), N − 1
           back, 1 for the update
Bound      lines on knots h apart are within h²/8 · sup|f''| of f, a product of squares on knots g
           apart is within g²/16. With c_j = C · (units below layer j):
             |p̂_j − p_j| ≤ e_j = h²/8 sup|r''| + sup|r'| c_j e_{j−1},              e_0 = 0
             |r̂' − r'| ≤ f_j = h²/8 sup|r'''| + sup|r''| c_j e_{j−1}
             |ŝ_N − s_N| ≤ t_N = g²/16 + sup|r'| (e_N + e_u) + sup|u| f_N
             |ŝ_j − s_j| ≤ t_j = g²/16 + sup|r'| C m_{j+1} t_{j+1} + C m_{j+1} sup|s_{j+1}| f_j
           m_{j+1} the units of layer j + 1, e_u the error of lines for u. An entry of the gradient
           is within t_j sup|p_{j−1}| + sup|s_j| e_{j−1} of the true one: all fall like knots⁻².
           |p̂_j| ≤ sup|r| and |r̂'| ≤ sup|r'|, for lines between values stay between them
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from innerloop.constructions.base import Cost
from innerloop.constructions.network_gradient_descent import average
from innerloop.language import Data, State, clip, define, matvec, mean, relu, transposed
from innerloop.language.definition import Definition
from innerloop.language.prompts.networks import NetworkProgram, NetworkPrompt
from innerloop.parameters import parameter

Function = Callable[[Tensor], Tensor]


class Smooth(NamedTuple):
    """A function in C⁴ with its derivative, and the largest |r'|, |r''| and |r'''|."""

    value: Function
    slope: Function
    first: float
    second: float
    third: float


def _tanh_slope(t: Tensor) -> Tensor:
    return 1 - torch.tanh(t).square()


def _sigmoid_slope(t: Tensor) -> Tensor:
    return torch.sigmoid(t) * torch.sigmoid(-t)


ACTIVATIONS = {
    "tanh": Smooth(torch.tanh, _tanh_slope, 1.0, 4 / math.sqrt(27), 2.0),
    "sigmoid": Smooth(torch.sigmoid, _sigmoid_slope, 1 / 4, 1 / math.sqrt(108), 1 / 8),
    "softplus": Smooth(torch.nn.functional.softplus, torch.sigmoid, 1.0, 1 / 4, 1 / math.sqrt(108)),
}


class Lines(NamedTuple):
    """Straight lines between a function's values at evenly spaced knots, as a sum of hinges."""

    first: float
    """The value at the first knot."""
    knots: list[float]
    jumps: list[float]
    """Changes of the slope at the knots."""

    def follow(self, score: Any) -> Any:
        """Σ of jumps · relu(score − knot): the function, but for its value at the first knot."""
        hinges = zip(self.knots, self.jumps, strict=True)
        return reduce(add, (jump * relu(score - knot) for knot, jump in hinges))


def draw_through(function: Function, reach: float, count: int) -> Lines:
    """Draw lines through a function on `count` intervals of [−reach, reach]."""
    knots = torch.linspace(-reach, reach, count + 1, dtype=torch.float64)
    values = function(knots)
    slopes = values.diff() / knots.diff()
    jumps = slopes.diff(prepend=torch.zeros(1, dtype=torch.float64))
    return Lines(float(values[0]), knots[:-1].tolist(), jumps.tolist())


class Reaches(NamedTuple):
    """Largest magnitudes, layer by layer: what the knots must cover."""

    p: list[float]
    a: list[float]
    off: float
    """|p_N − y|."""
    factor: list[float]
    """What r'(a_j) is multiplied by: u, then V_{j+1}ᵀ ŝ_{j+1}."""
    sum: list[float]
    """Both factors of a product together."""
    s: list[float]


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothNetworkDescent(NetworkProgram):
    """2N + 1 blocks per step, one more with log cosh, looped."""

    source: ClassVar[str] = "Yang 2025, second paper (Wu et al. 2024), Theorem 1"
    cost: ClassVar[Cost] = Cost(layers="(2N + 2)k", heads="2K knots", width="counted")
    attention: ClassVar[str] = "relu"
    looped: ClassVar[bool] = True

    layers: int = parameter(2, "N, layers of the network", least=2, most=8)
    step_size: float = parameter(0.5, "η")
    box: float = parameter(1.0, "C, the largest weight that the projection allows")
    activation: str = parameter("tanh", "r: tanh, sigmoid or softplus")
    loss: str = parameter("squared", "squared or log cosh")
    largest_x: float = parameter(1.0, "B_x, the largest norm of an example")
    largest_y: float = parameter(1.0, "B_y, the largest label")
    knots: int = parameter(16, "intervals between the knots of each function", least=2, most=10**4)

    @property
    def layer_count(self) -> int:
        return self.layers

    @cached_property
    def definition(self) -> Definition:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._define()

    @cached_property
    def reaches(self) -> Reaches:
        r, C = ACTIVATIONS[self.activation], self.box
        p, a = [self.largest_x], []
        for j, (_, columns) in enumerate(self.shapes):
            # Of x the norm is bounded, of p_j every entry.
            a.append(C * p[-1] * (columns if j else math.sqrt(columns)))
            ends = r.value(torch.tensor([-a[-1], a[-1]], dtype=torch.float64))
            p.append(float(ends.abs().max()))
        off = p[-1] + self.largest_y
        factors, s = [math.tanh(off) if self.loss == "log cosh" else off], []
        for rows, _ in reversed(self.shapes):
            g = 2 * (factors[0] + r.first) / self.knots
            s.insert(0, factors[0] * r.first + g**2 / 16)
            factors.insert(0, C * rows * s[0])
        return Reaches(p, a, off, factors[1:], [each + r.first for each in factors[1:]], s)

    @property
    def gradient_error(self) -> float:
        """The bound on the norm of the gradient's error, as the header derives it."""
        r, C, reach, M = ACTIVATIONS[self.activation], self.box, self.reaches, self.knots
        e, f = [0.0], []
        for (_, columns), a in zip(self.shapes, reach.a, strict=True):
            h = 2 * a / M
            f.append(h**2 / 8 * r.third + r.second * C * columns * e[-1])
            e.append(h**2 / 8 * r.second + r.first * C * columns * e[-1])
        bent = ACTIVATIONS["tanh"].second * (2 * reach.off / M) ** 2 / 8
        before = e[-1] + (bent if self.loss == "log cosh" else 0.0)
        squares = 0.0
        for j in reversed(range(self.layers)):
            rows, columns = self.shapes[j]
            t = (2 * reach.sum[j] / M) ** 2 / 16 + r.first * before + reach.factor[j] * f[j]
            squares += rows * columns * (t * reach.p[j] + reach.s[j] * e[j]) ** 2
            before = C * rows * t
        return math.sqrt(squares)

    def _define(self) -> Definition:
        r, reach, M, N = ACTIVATIONS[self.activation], self.reaches, self.knots, self.layers
        values = [draw_through(r.value, each, M) for each in reach.a]
        slopes = [draw_through(r.slope, each, M) for each in reach.a]
        squares = [draw_through(lambda t: t.square() / 4, each, M) for each in reach.sum]
        bend = draw_through(torch.tanh, reach.off, M) if self.loss == "log cosh" else None
        prompt = NetworkPrompt(N)
        weights = {f"V{k}": State(*prompt.offers[f"V{k}"], shared=True) for k in range(1, N + 1)}

        @define(prompt=prompt, x=Data("d"), y=Data("m"), t=Data(), query=Data(), **weights)
        def descend(me: Any, n: int, step_size: Any, box: Any) -> None:
            def follow(lines: Lines, score: Callable[[Any], Any]) -> Any:
                return lines.first + mean(lambda j: lines.follow(score(j)), over="all")

            def multiply(lines: Lines, factor: Callable[[Any], Any], q: Any, off: Any) -> Any:
                def subtract(j: Any) -> Any:
                    return lines.follow(factor(j) + q - off) - lines.follow(factor(j) - q - off)

                return mean(subtract, over="all")

            def keep(value: Any) -> Callable[[Any], Any]:
                return lambda j: (j.t + j.query) * value  # times 1, so that it becomes heads

            me.p0 = me.x
            for k in range(1, N + 1):
                score = partial(apply, f"V{k}", me[f"p{k - 1}"])
                me[f"p{k}"] = follow(values[k - 1], score)
                me[f"q{k}"] = follow(slopes[k - 1], score)
            factor = keep(me[f"p{N}"] - me.y)
            if bend is not None:
                me.u = follow(bend, factor)
                factor = keep(me.u)
            for k in range(N, 0, -1):
                off = 2 * reach.sum[k - 1] * me.query
                me[f"s{k}"] = multiply(squares[k - 1], factor, me[f"q{k}"], off)
                factor = partial(apply_transposed, f"V{k}", me[f"s{k}"])
            for k in range(1, N + 1):
                slope = average(f"s{k}", f"p{k - 1}")
                me[f"V{k}"] = clip(me[f"V{k}"] - step_size * (n + 1) / n * slope, box)

        @descend.answer
        def _(me: Any) -> Any:
            return me.x  # the theorem is about the weights: nothing is read out

        return descend


def apply(weights: str, below: Any, j: Any) -> Any:
    """V·below, for weights that every token holds."""
    return matvec(j[weights], below)


def apply_transposed(weights: str, above: Any, j: Any) -> Any:
    """Vᵀ·above, for weights that every token holds."""
    return matvec(transposed(j[weights]), above)
