"""Gradient descent on an N-layer ReLU network, run exactly by ReLU attention in 2N blocks a step.

Algorithm  V ← Proj( V − η ∇R(V) ), the box |V| ≤ C; R(V) = 1/n Σᵢ ℓ(f(xᵢ) − yᵢ), f = p_N, p_0 = x,
           p_j = σ(V_j p_{j−1}); ℓ is r²/2 or Huber's
Invariant  registers `V1` … `VN` of every token hold the weights; `x`, `y`, `one`, `query` hold
           the prompt; the scratch places are 0
Proof      every key holds V, so an average of a head over keys depends only on the query token.
           Forward, block j: the head with score ⟨p_{j−1}, V_j[k]⟩ adds its ReLU, p_j[k]; score
           1 − 2S⟨p_{j−1}, V_j[k]⟩ adds off_j[k], which is 0 where the unit's input is ≥ 1/S, and
           ≥ 1 where it is ≤ 0. `query`, which is 1 on the query, is added to off_N. The MLP of
           block N: σ(r − B off_N) − σ(−r − B off_N) with r = p_N − y is r where off_N = 0 and 0
           elsewhere, which is s_N (Huber's ℓ' = r − σ(r − 1) + σ(−r − 1) likewise). Backward, j =
           N−1 … 1: a signed pair with score ⟨s_{j+1}, V_{j+1}[:, l]⟩ and gate −B off_j[l] adds
           s_j[l]. Update: a signed pair with query 1, key s_j[k] and value −η((n+1)/n) p_{j−1}
           under 1/(n+1) adds −η ∇R to V_j[k]; then the MLP clips V and clears the other registers.
           Read-out: the forward blocks again
Exact for  every N ≥ 2, K, d, m, η, C, both losses, one query, the built n, units whose input is 0
           or beyond ±1/S, and residuals and back-propagated sums up to B. An open gate adds exactly
           0 to its score, so neither S nor B costs precision
Source     yang2025.wu.theorem-1, printed for a smooth activation, with (2N + 4)L layers and w = 0.
           ReLU is not smooth, therefore S; 0 is a stationary point, so initial weights are part of
           the prompt. The output has a ReLU too
"""

import math
from functools import cache, cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms import network_gradient_descent as descent
from innerloop.errors import OutOfRangeError
from innerloop.language import clip, closed, define, matvec, mean, outer, relu, transposed
from innerloop.language.classes import Cost, Definition, NetworkProgram, Registers, parameter
from innerloop.language.prompts.networks import NetworkPrompt, format_shapes
from innerloop.language.types import Data, State
from innerloop.problems.network_regression import activations

MAX_WEIGHTS = 400
"""The largest number of weights of the trained network.

Each head of the update stores a matrix between its registers and all weights. The memory therefore
grows with the cube of this number, to 100 MB."""


def pass_forward(below: Any, weights: str, slope: Any = 1, bias: Any = 0) -> Any:
    """Return relu(slope V·below + bias) of this token, for weights V that every token holds."""
    return mean(lambda j: relu(slope * matvec(j[weights], below) + bias), over="all")


def pass_back(above: Any, weights: str, off: Any) -> Any:
    """Return Vᵀ·above where `off` is 0, and 0 where `off` is large enough to close the gate."""

    def gate(j: Any) -> Any:
        passed = matvec(transposed(j[weights]), above)
        return relu(passed - off) - relu(-passed - off)

    return mean(gate, over="all")


def average(signal: str, below: str) -> Any:
    """Return the average of signal·belowᵀ over all tokens."""
    return mean(lambda j: outer(j[signal], j[below]), over="all")


@cache
def define_descent(layers: int) -> Definition:
    """Return the program for a network of N layers, whose weights are registers `V1` … `VN`."""
    prompt, numbers = NetworkPrompt(layers), range(1, layers + 1)
    shared = {f"V{k}": State(*prompt.offers[f"V{k}"], shared=True) for k in numbers}

    @define(prompt=prompt, x=Data("d"), y=Data("m"), query=Data(), **shared)
    def descend(me: Any, n: int, own: Any) -> None:
        bound, huber = own.bound, descent.HUBER_THRESHOLD
        me.p0 = me.x
        for k in numbers:
            me[f"p{k}"] = pass_forward(me[f"p{k - 1}"], f"V{k}")
            me[f"off{k}"] = pass_forward(me[f"p{k - 1}"], f"V{k}", -2 * own.slope, 1)
        rest, shut = me[f"p{layers}"] - me.y, me[f"off{layers}"] + me.query
        signal = closed(rest, shut, bound)
        if own.loss == "huber":
            signal += relu(-rest - huber - bound * shut) - relu(rest - huber - bound * shut)
        me[f"s{layers}"] = signal
        for k in reversed(numbers[:-1]):
            me[f"s{k}"] = pass_back(me[f"s{k + 1}"], f"V{k + 1}", bound * me[f"off{k}"])
        for k in numbers:
            moved = me[f"V{k}"] - own.step_size * (n + 1) / n * average(f"s{k}", f"p{k - 1}")
            me[f"V{k}"] = clip(moved, own.box)

    @descend.answer
    def _(me: Any) -> Any:
        return reduce(pass_forward, [f"V{k}" for k in numbers], me.x)

    return descend


class NetworkGradientDescentConstruction(NetworkProgram):
    """Gradient descent on a ReLU network: 2N blocks per step, looped, and N for the read-out."""

    source = "Yang 2025, second paper (Wu et al. 2024), Theorem 1"
    cost = Cost(
        layers="2Nk + N",
        heads="max(K + 2m, b, 2r)",
        width="max(dK + NK² − 2K² + mK + NK + d + 4m + 2, "
        "dK + NK² − 2K² + mK + 2NK − K + d + 2m + 2)",
        printed="(2N + 4)L layers",
        where="N = layers, K = width, m = outputs, b = back_heads, r = update_rank",
    )
    attention = "relu"
    looped = True
    remedy = "build it with a larger slope or bound"
    cases = (
        {"layers": 2, "width": 6, "d": 4, "n": 9, "steps": 5, "box": 10.0},
        {"layers": 3, "loss": "huber", "n": 15, "steps": 6},
        {"layers": 4, "width": 3, "loss": "huber", "outputs": 3, "box": 0.5, "steps": 5},
        {"layers": 2, "width": 1, "d": 1, "n": 1, "outputs": 4, "steps": 3},
        {"layers": 6, "width": 3, "d": 2, "n": 6, "steps": 2, "box": 2.0},
    )

    layers: int = parameter(3, "N, layers of the network", least=2, most=32)
    step_size: float = parameter(0.1, "η")
    loss: descent.Loss = parameter("squared", "the loss, squared or huber")
    box: float = parameter(1.0, "C, the largest weight of the projection", least=1e-6, most=1e6)
    slope: float = parameter(
        1e10, "S; unit inputs in (0, 1/S) are out of range", least=1.0, most=1e12
    )
    bound: float = parameter(1e3, "B, the largest back-propagated value", least=1e-6, most=1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = sum(rows * columns for rows, columns in self.shapes)
        if weights > MAX_WEIGHTS:
            raise OutOfRangeError(
                f"{self.name} expects a network of at most {MAX_WEIGHTS} weights, got {weights} "
                f"({format_shapes(self.shapes)}): use fewer layers, units or features"
            )

    @property
    def definition(self) -> Definition:  # pyright: ignore[reportIncompatibleVariableOverride]
        return define_descent(self.layers)

    @property
    def back_heads(self) -> int:
        """The number of heads of a block of the backward pass: 3K, or 2K if N = 2."""
        return min(3, self.layers) * self.width

    @property
    def update_rank(self) -> int:
        """The number of pairs of heads of the update: the rank of each sum of outer products."""
        return sum(min(shape) for shape in self.shapes)

    @cached_property
    def algorithm(self) -> descent.NetworkGradientDescent:
        size, box = torch.tensor([self.step_size, self.box], dtype=torch.float64)
        return descent.NetworkGradientDescent(size.unsqueeze(0), box, self.loss)

    def represent(self, filled: Registers, state: Any) -> Registers:
        return {f"V{j}": matrix.unsqueeze(-3) for j, matrix in enumerate(state, 1)}

    def usage(self, stream: Tensor) -> float:
        """Return the share of the range that the current network uses.

        Inputs of units are compared with ±1/S, and gated values with B.
        """
        names = (f"V{j}" for j in range(1, self.layers + 1))
        weights = tuple(self.layout.read(stream, name)[..., 0, :, :] for name in names)
        x, y = (self.layout.read(stream, name) for name in ("x", "y"))
        passed = activations(weights, x)
        gated = [passed[-1] - y]
        # The signals of the query are 0 for every state of its gates.
        passed = [activation[..., :-1, :] for activation in passed]
        signals = self.algorithm.signals(weights, passed, y[..., :-1, :])
        gated += [signal @ above for signal, above in zip(signals[1:], weights[1:], strict=True)]
        shares = [float(number.abs().max()) / self.bound for number in gated]
        for matrix, below in zip(weights, passed[:-1], strict=True):
            inputs = below @ matrix.mT
            # For an input of exactly 0 (all units before are inactive) both treat the unit as off.
            near = (self.slope * inputs.abs()).reciprocal().masked_fill(inputs == 0, 0.0)
            shares.append(float(near.max()))
        return max(math.inf if math.isnan(share) else share for share in shares)
