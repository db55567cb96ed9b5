"""Steps v ← Av/‖Av‖ and A ← A − ‖Av‖ v vᵀ, for a matrix spread over the tokens.

Registers  `id` holds e_j on token j ≤ d and 0 elsewhere, `cov` column j of A on token j ≤ d. Every
           token holds the vectors and, during a step, the same `u`, `w`, `z` (d each), `s`, `g`,
           `t`
Proof      a head with query v, key id, value n·cov computes u = Av. A head with query u, key u,
           value one computes s = ‖u‖². The MLP interpolates g ≈ s^{−1/2} between knots. A head with
           query g, key g, value s computes t = s g². A head with score 3/2 g − 1/2 t g, which is
           positive, adds 3/2 g u − 1/2 t g u to v, which is u times Newton's next iterate of g
Bound      on geometric knots of ratio r, g is s^{−1/2} (1 + e) with 0 ≤ e ≤ δ, where
           δ = 2((q + 1)/3)^{3/2}/q − 1 ≈ (3/32) ln² r for q = r + √r, and g (3 − s g²)/2 is
           s^{−1/2} (1 − 3/2 e² − 1/2 e³). So the error of a length is at most 3/2 δ² + 1/2 δ³, and
           directions are exact. A ← A − ‖Av‖ v vᵀ has the same error once, and the error of v
           three times
"""

from __future__ import annotations

import math
from typing import Any

import torch

from innerloop.language import dot, mean, piecewise, relu, total


def spread_covariance(me: Any) -> Any:
    """Return column j of (1/n) Σ x xᵀ, on token j."""
    return mean(lambda j: dot(me.id, j.x) * j.x, over="all")


def iterate(me: Any, own: Any, vector: Any) -> Any:
    """Return Av/‖Av‖ of a vector v that every token holds."""
    share = divide_by_length(me, own, vector)
    return mean(lambda j: share(j) * j.u, over="all")


def deflate(me: Any, own: Any, vector: Any) -> Any:
    """Return A − ‖Av‖ v vᵀ: with z = v/‖Av‖ and w = ‖Av‖² v, subtract w_j z from column j."""
    me.unit, share = vector, divide_by_length(me, own, vector)
    me.w = me.s * me.unit
    me.z = mean(lambda j: share(j) * j.unit, over="all")
    return me.cov - mean(lambda j: dot(me.id, j.w) * j.z, over="all")


def divide_by_length(me: Any, own: Any, vector: Any) -> Any:
    """Return the score 1/‖Av‖, for heads that divide their values by ‖Av‖."""
    ends = 2 * math.log(own.least), 2 * math.log(own.most)
    squares = torch.linspace(*ends, own.knots, dtype=torch.float64).exp()
    me.u = total(lambda j: dot(vector, j.id) * j.cov, over="all")
    me.s = mean(lambda j: relu(dot(me.u, j.u)), over="all")
    me.g = piecewise(me.s, lambda s: s**-0.5, squares)
    me.t = mean(lambda j: relu(me.g * j.g) * j.s, over="all")
    return lambda j: relu(1.5 * me.g - 0.5 * (me.t * j.g))


def find_knot_error(knots: int, least: float, most: float) -> float:
    """Return δ, the largest relative error of s^{−1/2} on the knots: of a chord at (q + 1)/3."""
    root = math.exp(math.log(most / least) / (knots - 1))
    q = root**2 + root
    return 2 * ((q + 1) / 3) ** 1.5 / q - 1
