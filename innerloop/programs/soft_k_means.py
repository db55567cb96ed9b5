"""Soft k-means, in four blocks per step.

Program    γ_ik ∝ exp(−β ‖x_i − μ_k‖²/2),   μ_k ← Σ_i γ_ik x_i / Σ_i γ_ik. The M head needs log γ_ik
           up to what depends on k alone, β⟨μ_k, x_i⟩ − λ_i, and λ_i = Σ_k γ_ik (l_ik − log γ_ik)
           with l_ik the scores of the E head; −γ log γ is on knots (j/m)²
Registers  centroid token k holds μ_k; data token i its point and its mark; data tokens answer γ
Agrees     with the algorithm `soft-k-means`: λ is too small by at most e = K/(2m²), and a mean of
           points within `bound` off by 2·bound·tanh(e/4)
Exact for  every d, K, the built n and points of lengths within `bound`, to rounding (softmax has no
           rational values), with −γ log γ linear between knots. Gates add and subtract a number
           that grows like β·bound²·n, and rounding with it; where choices are sharp (a large β),
           it grows from step to step
"""

from typing import Any

import torch

from innerloop.language import (
    Bound,
    Count,
    Data,
    Number,
    State,
    dot,
    entry_sum,
    gate,
    own_total,
    piecewise,
    program,
    relu,
    softmax,
)
from innerloop.transformer.marks import find_gap

LEAK = 60.0
"""Gates lower the scores of other tokens by this much more than the range of scores."""


@program(
    prompt="points",
    source="MacKay 2003, Information theory, Algorithm 20.7",
    x=Data("d"),
    id=Data("K"),
    data=Data(),
    centroid=Data(),
    p=Data(4),
    mu=State("d"),
    stiffness=Number(0.25, "β, how sharply points choose", least=1e-6, most=1e4),
    bound=Bound(40.0, "the largest length of points and means", most=1e4),
    knots=Count(1000, "knots of −γ log γ", least=2),
)
def soft_k_means(me: Any, n: int, stiffness: Any, bound: Any, knots: int) -> None:
    """Compute shares by a softmax over means, then new means by a softmax over points."""
    product = bound * bound  # the largest |⟨x, μ⟩|
    choose = make_chooser(me, stiffness, product)
    # On data tokens: the shares γ, and the means of μ and of ‖μ‖²/2 with these shares.
    me.share = choose(lambda j: j.id)
    me.near = choose(lambda j: j.mu)
    me.level = choose(lambda j: j.square)
    # λ, the mean of the scores of the E head with the shares γ, plus the entropy of γ.
    roots = torch.linspace(0.0, 1.0, knots, dtype=torch.float64)
    entropy = piecewise(me.share, lambda g: -torch.xlogy(g, g), roots**2)
    fit = own_total(lambda j: stiffness * dot(me.x, j.near), "p", stiffness * product, find_gap(n))
    me.normaliser = fit - stiffness * me.level + entry_sum(entropy)
    # The M head: the mean of the points with weights proportional to γ, on centroid tokens.
    middle = softmax(
        lambda j: stiffness * dot(me.mu, j.x) - j.normaliser,
        lambda j: j.x,
        where=lambda j: j.data,
        reach=8 * stiffness * product + LEAK,
    )
    me.mu = gate(me.centroid, middle, bound)


@soft_k_means.answer
def _(me: Any, stiffness: Any, bound: Any) -> Any:
    return make_chooser(me, stiffness, bound * bound)(lambda j: j.id)


def make_chooser(me: Any, stiffness: Any, product: Any) -> Any:
    """Return a function that averages a value over the means, with the shares of a point as
    weights.

    It also sets `me.square`, which on a centroid token is ‖μ‖²/2. The score of a mean is β(⟨x, μ⟩ −
    ‖μ‖²/2), which is −β‖x − μ‖²/2 up to a number that is the same for all means.
    """
    me.square = own_total(lambda j: 0.5 * relu(dot(me.mu, j.mu)), "id", product)
    return lambda value: softmax(
        lambda j: stiffness * (dot(me.x, j.mu) - j.square),
        value,
        where=lambda j: j.centroid,
        reach=4 * stiffness * product + LEAK,
    )
