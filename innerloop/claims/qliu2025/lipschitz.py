"""A transformer is Lipschitz in the norm of its weights, for bounded inputs.

Printed    one sentence after ‖θ‖ = max_ℓ { max_m max(‖Q‖, ‖K‖) + Σ_m ‖V_m‖ + ‖W₁‖ + ‖W₂‖ }: the
           transformer can be proven Lipschitz continuous to this norm when inputs are bounded
Tested     ‖TF_θ(H) − TF_θ'(H)‖ (the largest column) against ‖θ − θ'‖ for encoders and decoders,
           L ≤ 3 layers, M ≤ 3 heads; over all θ; and over ‖θ‖, ‖θ'‖ ≤ B with the constant below, at
           random, near each other, and by a search that maximises the quotient
Correction on ‖θ‖ ≤ B. Over all θ it fails: D = N = 1, Q = K = V = t adds t³h³
Beyond     a constant: with columns of length ≤ r, a layer gives r₊ = (1 + B²)(r + B³r³), and
           λ₊ = (1 + B²)((1 + 3B³r²)λ + B²r³) + B(r + B³r³) for the Lipschitz constant λ so far
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Inequality


class Layer(NamedTuple):
    """The matrices V, Q, K stacked over heads, and those of the MLP."""

    V: Tensor
    Q: Tensor
    K: Tensor
    W1: Tensor
    W2: Tensor


def weights_norm(layers: list[Layer]) -> Tensor:
    """The norm ‖θ‖ as the slides define it."""
    found = []
    for layer in layers:
        V, Q, K, W1, W2 = (torch.linalg.matrix_norm(part, 2) for part in layer)
        found.append(torch.maximum(Q.max(), K.max()) + V.sum() + W1 + W2)
    return torch.stack(found).max()


def run_layers(layers: list[Layer], H: Tensor, causal: bool) -> Tensor:
    """Run attention, Σ_j σ(⟨Qh_i, Kh_j⟩)Vh_j over j ≤ i by 1/i or all j by 1/N, then the MLP."""
    N = H.shape[-1]
    weights = torch.full((N, N), 1 / N, dtype=H.dtype)
    if causal:
        weights = torch.ones(N, N, dtype=H.dtype).triu() / torch.arange(1.0, N + 1).to(H)
    for layer in layers:
        scores = ((layer.K @ H).mT @ (layer.Q @ H)).relu()
        H = H + ((layer.V @ H) @ (weights * scores)).sum(0)
        H = H + layer.W2 @ (layer.W1 @ H).relu()
    return H


def lipschitz_constant(B: float, r: float, layers: int) -> float:
    """The Lipschitz constant λ for ‖θ‖ ≤ B, L layers and columns of length at most r."""
    found = 0.0
    for _ in range(layers):
        middle = r + B**3 * r**3
        found = (1 + B**2) * ((1 + 3 * B**3 * r**2) * found + B**2 * r**3) + B * middle
        r = (1 + B**2) * middle
    return found


def distance(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).norm(dim=0).max()


@claim(
    "qliu2025.lipschitz",
    "On bounded inputs a transformer is a Lipschitz function of its weights in the norm ‖θ‖.",
    where="Slide after the definition of ‖θ‖",
    kind="inequality",
    quick={"trials": 300, "starts": 2},
    full={"trials": 60_000, "starts": 40},
    tiny={"trials": 20, "starts": 1},
    falsified={"a constant that is 40 times smaller": {"scale": 1 / 40}},
)
def lipschitz(
    generator: torch.Generator, *, trials: int, starts: int, scale: float = 1.0
) -> Evidence:
    anywhere = Inequality("‖TF_θ(H) − TF_θ'(H)‖ ≤ λ‖θ − θ'‖ for all θ, λ fitted at ‖θ‖ = 2")
    ball = Inequality("the same on ‖θ‖, ‖θ'‖ ≤ B with λ(B, r, L)")
    _cubic(anywhere)
    nearest = 0.0
    for trial in range(trials):
        layers, B = (
            draw_integer(generator, 1, 3),
            float(10 ** (torch.rand((), generator=generator) - 0.7)),
        )
        sizes = (
            draw_integer(generator, 1, 4),
            draw_integer(generator, 1, 3),
            draw_integer(generator, 1, 4),
        )
        one = _draw_layers(generator, layers, *sizes, B)
        other = _draw_layers(generator, layers, *sizes, B)
        if trial % 2:
            other = _interpolate_layers(one, other, 1e-4)
        N, causal = draw_integer(generator, 1, 5), trial % 3 == 0
        r = float(10 ** (torch.rand((), generator=generator) - 0.7))
        H = draw_normal(generator, sizes[0], N)
        H = H / H.norm(dim=0) * r
        left = distance(run_layers(one, H, causal), run_layers(other, H, causal))
        right = (
            scale * lipschitz_constant(B, r, layers) * weights_norm(_subtract_layers(one, other))
        )
        nearest = max(nearest, float(left / right) * scale)
        told = f"L = {layers}, D = {sizes[0]}, M = {sizes[1]}, N = {N}, B = {B:.3g}, r = {r:.3g}"
        ball.add(left, right, size=(layers, sizes[0], trial), about=told)
    best, evaluations = _search(generator, starts, ball, scale)
    ball.search_note = f"a search over θ, θ' evaluated it {evaluations} times"
    return Evidence(
        parts=[Part(printed=anywhere.check(), corrected=ball.check(), matters="result")],
        numbers={
            "largest quotient at random, in units of λ": nearest,
            "largest quotient of the search (L = 1, D = 1, B = r = 1), in units of λ": best,
        },
    )


def _cubic(found: Inequality) -> None:
    """The case D = N = 1, h = 1, Q = K = V = t against θ' = 0: t³ against 2t."""
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    none = 0 * one[0]
    H = torch.ones(1, 1, dtype=torch.float64)
    fitted = 0.0
    for t in (1.0, 2.0, 4.0, 8.0):
        theta = [Layer(t * one, t * one, t * one, none, none)]
        zero = [Layer(0 * one, 0 * one, 0 * one, none, none)]
        left = float(distance(run_layers(theta, H, False), run_layers(zero, H, False)))
        fitted = fitted or left / float(weights_norm(theta))
        about = f"D = N = 1, h = 1, Q = K = V = {t:g}, θ' = 0, ‖θ‖ = {2 * t:g}, λ = {fitted:g}"
        found.add(left, fitted * float(weights_norm(theta)), size=(t,), about=about)


def _draw_layers(
    generator: torch.Generator, layers: int, D: int, heads: int, hidden: int, B: float
) -> list[Layer]:
    """Draw weights with ‖θ‖ = B, the parts of random size."""
    found = []
    for _ in range(layers):
        V, Q, K = (
            draw_normal(generator, heads, D, D) * torch.rand((), generator=generator).double()
            for _ in range(3)
        )
        found.append(
            Layer(V, Q, K, draw_normal(generator, hidden, D), draw_normal(generator, D, hidden))
        )
    return _scale_layers(found, B / float(weights_norm(found)))


def _scale_layers(layers: list[Layer], by: float) -> list[Layer]:
    return [Layer(*(by * part for part in layer)) for layer in layers]


def _subtract_layers(one: list[Layer], other: list[Layer]) -> list[Layer]:
    pairs = zip(one, other, strict=True)
    return [Layer(*(a - b for a, b in zip(*pair, strict=True))) for pair in pairs]


def _interpolate_layers(one: list[Layer], other: list[Layer], share: float) -> list[Layer]:
    """A point near `one` on the way to `other`, inside the ball, which is convex."""
    pairs = zip(one, other, strict=True)
    return [
        Layer(*((1 - share) * a + share * b for a, b in zip(*pair, strict=True))) for pair in pairs
    ]


def _search(
    generator: torch.Generator, starts: int, found: Inequality, scale: float
) -> tuple[float, int]:
    """Search the largest quotient over two sets of five numbers, ‖θ‖ ≤ 1, one layer, h = 1."""
    H = torch.ones(1, 1, dtype=torch.float64)

    def layers(point: Tensor) -> list[Layer]:
        parts = [
            Layer(*(v.reshape(1, 1, 1) for v in point[:3]), *(v.reshape(1, 1) for v in point[3:]))
        ]
        size = weights_norm(parts)
        return [Layer(*(part / torch.maximum(size, torch.ones(())) for part in parts[0]))]

    def quotient(point: Tensor) -> tuple[Tensor, Tensor]:
        one, other = layers(point[:5]), layers(point[5:])
        return distance(run_layers(one, H, False), run_layers(other, H, False)), weights_norm(
            _subtract_layers(one, other)
        )

    def margin(point: Tensor) -> Tensor:
        left, right = quotient(point)
        return 1 - left / (lipschitz_constant(1.0, 1.0, 1) * right)

    best, least, evaluations = search_minimum(
        margin, draw_normal(generator, starts, 10).abs(), iterations=12
    )
    left, right = quotient(best)
    about = "where a search ended, L = 1, D = 1"
    found.add(left, scale * lipschitz_constant(1.0, 1.0, 1) * right, size=(1, 1, 1e9), about=about)
    return 1 - least, evaluations
