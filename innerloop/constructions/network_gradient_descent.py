"""Gradient descent on an N-layer ReLU network, run exactly by ReLU attention in 2N blocks a step.

Algorithm  V ← Proj( V − η ∇R(V) ), the box |V| ≤ C; R(V) = 1/n Σᵢ ℓ(f(xᵢ) − yᵢ), f = p_N, p_0 = x,
           p_j = σ(V_j p_{j−1}); ℓ is r²/2 or Huber's
Invariant  registers `V1` … `VN` of every token hold the weights; `x`, `y`, `one`, `t` hold the
           prompt; `p1` …, `off1` …, `s1` … are 0
Proof      every key holds V, so what heads average over keys depends on the query token alone.
           Forward, block j: score ⟨p_{j−1}, V_j[k]⟩ adds σ of it, p_j[k]; score 1 − 2S⟨p_{j−1},
           V_j[k]⟩ adds off_j[k], which is 0 where the unit's input is ≥ 1/S, and ≥ 1 where it is
           ≤ 0; score 1 − t adds 1 to off_N on the query. The MLP of block N: σ(r − B off_N) −
           σ(−r − B off_N) with r = p_N − y is r where off_N = 0 and 0 elsewhere, which is s_N
           (Huber's ℓ' = r − σ(r − 1) + σ(−r − 1) alike). Backward, j = N−1 … 1: a signed pair with
           score ⟨s_{j+1}, V_{j+1}[:, l]⟩ and gate −B off_j[l] adds s_j[l]. Update: a signed pair
           with query 1, key s_j[k] and value −η((n+1)/n) p_{j−1} under 1/(n+1) adds −η ∇R to
           V_j[k]; then the MLP clips V and clears the rest. Read-out: the forward blocks again
Exact for  every N ≥ 2, K, d, m, η, C, both losses, one query, the built n, units whose input is 0
           or beyond ±1/S, and residuals and back-propagated sums up to B. An open gate adds exactly
           0 to its score, so neither S nor B costs precision
Source     yang2025.wu.theorem-1, printed for a smooth activation, with (2N + 4)L layers and w = 0.
           ReLU is not smooth, hence S; 0 is a stationary point, so the prompt brings the start. The
           output has a ReLU too
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.network_gradient_descent import (
    HUBER_THRESHOLD,
    Loss,
    NetworkGradientDescent,
)
from innerloop.constructions.base import Construction, Cost
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.network_regression import (
    NetworkProblem,
    NetworkRegression,
    NetworkWeights,
    activations,
    network_shapes,
)
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    Units,
    clear,
    clip,
    make_signed_pair,
)
from innerloop.transformer.pieces import Piece

MAX_WEIGHTS = 400
"""Every head of the update stores a matrix between its registers and all weights: memory grows with
the cube of the network's weights, to 100 MB here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkGradientDescentConstruction(Construction[NetworkProblem, NetworkWeights]):
    """2N blocks per step, looped, and N for the read-out."""

    source: ClassVar[str] = "Yang 2025, second paper (Wu et al. 2024), Theorem 1"
    cost: ClassVar[Cost] = Cost(
        layers="2Nk + N",
        heads="2NK − 2K + 2m",
        width="dK + NK² − 2K² + mK + 3NK − 3K + d + 4m + 2",
        printed="(2N + 4)L layers",
        where="N = layers, K = width, m = outputs",
    )
    looped: ClassVar[bool] = True
    remedy: ClassVar[str] = "build it with a larger slope or bound"
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"layers": 2, "width": 6, "d": 4, "n": 9, "steps": 5, "box": 10.0},
        {"layers": 3, "loss": "huber", "n": 15, "steps": 6},
        {"layers": 4, "width": 3, "loss": "huber", "outputs": 3, "box": 0.5, "steps": 5},
        {"layers": 2, "width": 1, "d": 1, "n": 1, "outputs": 4, "steps": 3},
        {"layers": 6, "width": 3, "d": 2, "n": 6, "steps": 2, "box": 2.0},
    )

    d: int = parameter(3, "features", least=1, most=64)
    n: int = parameter(12, "context examples; the weights depend on n", least=1, most=10_000)
    layers: int = parameter(3, "N, layers of the network", least=2, most=32)
    width: int = parameter(4, "K, units of each hidden layer", least=1, most=64)
    outputs: int = parameter(1, "m, outputs of the network", least=1, most=64)
    step_size: float = parameter(0.1, "η")
    loss: Loss = parameter("squared", "the loss, squared or huber")
    box: float = parameter(
        1.0, "C, the largest weight that the projection allows", least=1e-6, most=1e6
    )
    slope: float = parameter(
        1e10, "S; a unit's input between 0 and 1/S is out of range", least=1.0, most=1e12
    )
    bound: float = parameter(
        1e3, "B, the largest residual or back-propagated sum allowed", least=1e-6, most=1e9
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = sum(rows * columns for rows, columns in self.shapes)
        if weights > MAX_WEIGHTS:
            raise OutOfRangeError(
                f"{self.name} takes networks of up to {MAX_WEIGHTS} weights, got {weights} "
                f"({_format_shapes(self.shapes)}): use fewer layers, units or features"
            )

    @cached_property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of V_1 … V_N."""
        return network_shapes(self.d, self.width, self.layers, self.outputs)

    @cached_property
    def layout(self) -> Layout:
        numbered = list(enumerate(self.shapes, 1))
        weights = {f"V{j}": shape for j, shape in numbered}
        units = {f"{name}{j}": rows for name in ("p", "off", "s") for j, (rows, _) in numbered}
        return Layout(x=self.d, y=self.outputs, one=(), t=(), **weights, **units)

    @cached_property
    def algorithm(self) -> NetworkGradientDescent:
        size, box = torch.tensor([self.step_size, self.box], dtype=torch.float64)
        return NetworkGradientDescent(size.unsqueeze(0), box, self.loss)

    def distributions(self) -> list[NetworkRegression]:
        names = ("d", "n", "layers", "width", "outputs")
        sizes = {name: getattr(self, name) for name in names}
        return [NetworkRegression(**sizes, noise=0.3)]

    def accept(self, problem: NetworkProblem) -> None:
        if problem.shapes != self.shapes:
            raise OutOfRangeError(
                f"{self.name} was built for weights {_format_shapes(self.shapes)}, "
                f"got {_format_shapes(problem.shapes)}"
            )
        if problem.n != self.n:
            raise OutOfRangeError(f"{self.name} was built for n={self.n}, got n={problem.n}")

    def prompt(self, problem: NetworkProblem) -> Tensor:
        return self.encode(problem, problem.start)

    def encode(self, problem: NetworkProblem, state: NetworkWeights) -> Tensor:
        weights = {f"V{j}": matrix.unsqueeze(-3) for j, matrix in enumerate(state, 1)}
        return self.layout.make_tokens(**problem.to_encoder_format(), **weights)

    def body(self, k: int) -> list[Block]:
        layers = range(1, self.layers + 1)
        forward = [self._attention(self.forward_heads(j) + self.gate_heads(j)) for j in layers]
        backward = [self._attention(self.backward_heads(j)) for j in reversed(layers[:-1])]
        update = self._attention([head for j in layers for head in self.update_heads(j)])
        error, tidy = (
            MLP.from_pieces(self.layout, [self._derivative_units()]),
            MLP.from_pieces(self.layout, self.cleanup_pieces()),
        )
        return [
            *map(Block, forward[:-1]),
            Block(forward[-1], error),
            *map(Block, backward),
            Block(update, tidy),
        ]

    def epilogue(self) -> list[Block]:
        return [Block(self._attention(self.forward_heads(j))) for j in range(1, self.layers + 1)]

    def forward_heads(self, j: int) -> list[Head]:
        """Return the heads for p_j[k] = σ(⟨p_{j−1}, V_j[k]⟩)."""
        weights, to = self.layout[f"V{j}"], self.layout[f"p{j}"]
        return [
            Head({(self._input_register(j), weights[k]): 1.0}, {("one", to[k]): 1.0})
            for k in self._rows(j)
        ]

    def gate_heads(self, j: int) -> list[Head]:
        """Return the heads for off_j[k]: 0 if the unit is active, else at least 1.

        In the last layer it is also at least 1 where t is 0, on the query.
        """
        weights, to = self.layout[f"V{j}"], self.layout[f"off{j}"]
        # The ramp ends at half of 1/S: rounding at the edge of the range cannot open the gate.
        heads = [
            Head(
                {(self._input_register(j), weights[k]): -2 * self.slope, ("one", "one"): 1.0},
                {("one", to[k]): 1.0},
            )
            for k in self._rows(j)
        ]
        if j == self.layers:
            everywhere = torch.ones(self.outputs, 1, dtype=torch.float64)
            heads.append(Head({("one", "one"): 1.0, ("t", "one"): -1.0}, {("one", to): everywhere}))
        return heads

    def _derivative_units(self) -> Units:
        """Return MLP units for s_N = ℓ'(p_N − y) where off_N is 0, for either loss."""
        turns = {0.0: 1.0} | ({HUBER_THRESHOLD: -1.0} if self.loss == "huber" else {})
        eye = torch.eye(self.outputs, dtype=torch.float64)
        p, off, s = (f"{name}{self.layers}" for name in ("p", "off", "s"))
        residual = torch.cat([eye, -eye] * len(turns))
        closed = -self.bound * residual.abs()
        bias = torch.cat([torch.full((2 * self.outputs,), -turn) for turn in turns])
        writes = torch.cat([sign * part for sign in turns.values() for part in (eye, -eye)], dim=1)
        note = f"{s} += {self.loss} loss's derivative at {p} − y, where {off} = 0"
        return Units({p: residual, "y": -residual, off: closed}, bias, {s: writes}, note)

    def backward_heads(self, j: int) -> list[Head]:
        """Return the heads for s_j[l] = ⟨s_{j+1}, V_{j+1}[:, l]⟩ where off_j[l] is 0."""
        above, off, to = self.layout[f"V{j + 1}"], self.layout[f"off{j}"], self.layout[f"s{j}"]
        pairs = [
            make_signed_pair(
                Head(
                    score={(f"s{j + 1}", above[:, unit]): 1.0},
                    value={("one", to[unit]): 1.0},
                    gate={(off[unit], "one"): -self.bound},
                )
            )
            for unit in self._rows(j)
        ]
        return [head for pair in pairs for head in pair]

    def update_heads(self, j: int) -> list[Head]:
        """Return the heads for V_j[k] −= η/n Σᵢ s_j[k] p_{j−1}."""
        signal, weights = self.layout[f"s{j}"], self.layout[f"V{j}"]
        rate = self.step_size * (self.n + 1) / self.n
        pairs = [
            make_signed_pair(
                Head({("one", signal[k]): 1.0}, {(self._input_register(j), weights[k]): -rate})
            )
            for k in self._rows(j)
        ]
        return [head for pair in pairs for head in pair]

    def cleanup_pieces(self) -> list[Piece]:
        """Return MLP pieces that project V onto the box and clear the other registers."""
        layers = range(1, self.layers + 1)
        used = [clear(f"{name}{j}") for name in ("p", "off", "s") for j in layers]
        return [*(clip(f"V{j}", self.box) for j in layers), *used]

    def _input_register(self, j: int) -> str:
        """Return the register of p_{j−1}, the input of layer j."""
        return f"p{j - 1}" if j > 1 else "x"

    def _rows(self, j: int) -> range:
        return range(self.shapes[j - 1][0])

    def _attention(self, heads: list[Head]) -> Attention:
        return Attention.from_heads(
            self.layout, heads, kind="relu", mask="all", normalisation="1/N"
        )

    def decode(self, problem: NetworkProblem, stream: Tensor) -> Tensor:
        return self.layout.read(stream, f"p{self.layers}")[..., -1, :]

    def usage(self, stream: Tensor) -> float:
        """Compare the units' inputs with ±1/S, and gated numbers with B, in the current network."""
        weights = tuple(
            self.layout.read(stream, f"V{j}")[..., 0, :, :] for j in range(1, self.layers + 1)
        )
        x, y = (self.layout.read(stream, name) for name in ("x", "y"))
        passed = activations(weights, x)
        gated = [passed[-1] - y]
        # The query's signals are 0 whatever its gates do.
        passed = [activation[..., :-1, :] for activation in passed]
        signals = self.algorithm.signals(weights, passed, y[..., :-1, :])
        gated += [signal @ above for signal, above in zip(signals[1:], weights[1:], strict=True)]
        shares = [float(number.abs().max()) / self.bound for number in gated]
        for matrix, below in zip(weights, passed[:-1], strict=True):
            inputs = below @ matrix.mT
            # At exactly 0, as after units that are all inactive, algorithm and weights agree: off.
            near = (self.slope * inputs.abs()).reciprocal().masked_fill(inputs == 0, 0.0)
            shares.append(float(near.max()))
        return max(math.inf if math.isnan(share) else share for share in shares)


def _format_shapes(shapes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{rows}×{columns}" for rows, columns in shapes)
