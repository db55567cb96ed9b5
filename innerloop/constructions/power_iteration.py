"""Blocks that iterate v ← Av/‖Av‖ and deflate A, for a matrix spread over the tokens.

Registers  `id` holds e_j on token j ≤ d and 0 elsewhere, `cov` column j of A on token j ≤ d; every
           token holds the vectors and the same `u`, `w` (d each), `s`, `g`, `t`, which are 0
           between steps; `one` is 1
Proof      query v, key id, value n·cov: u = Av. Query u, key u, value one: s = ‖u‖². The MLP gives
           g ≈ s^{−1/2} on knots. Query g, key g, value s: t = s g². A head with score g and one
           with score ⟨t, g⟩ add 3/2 g u − 1/2 t g u to v: u times Newton's next iterate of g
Bound      on geometric knots of ratio r, g is s^{−1/2} (1 + e) with 0 ≤ e ≤ δ, where
           δ = 2((q + 1)/3)^{3/2}/q − 1 ≈ (3/32) ln² r for q = r + √r, and g (3 − s g²)/2 is
           s^{−1/2} (1 − 3/2 e² − 1/2 e³): a length is off by 3/2 δ² + 1/2 δ³ at most, and
           directions are exact. A ← A − ‖Av‖ v vᵀ makes the same error once more, and
           meets that of v three times
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    clear,
    make_signed_pair,
    piecewise_linear,
)
from innerloop.transformer.layout import Location


@dataclass(frozen=True, eq=False)
class PowerIteration:
    """Makes the blocks for prompts of n tokens and ‖Av‖ between `least` and `most`."""

    layout: Layout
    n: int
    knots: int
    least: float
    most: float

    @property
    def error(self) -> float:
        """The largest relative error of a length, 3/2 δ² + 1/2 δ³."""
        return 1.5 * self.delta**2 + 0.5 * self.delta**3

    @property
    def delta(self) -> float:
        """The largest relative error of s^{−1/2} on the knots: that of a chord at (q + 1)/3."""
        root = math.exp(math.log(self.most / self.least) / (self.knots - 1))
        q = root**2 + root
        return 2 * ((q + 1) / 3) ** 1.5 / q - 1

    def covariance(self) -> Block:
        """Return the block for cov_j ← column j of (1/n) Σ x xᵀ."""
        return Block(
            self._attention(*make_signed_pair(Head({("id", "x"): 1.0}, {("x", "cov"): 1.0})))
        )

    def iterate(self, v: Location) -> list[Block]:
        """Return the blocks for v ← Av/‖Av‖."""
        return [
            Block(self._product(v), self._mlp(v)),
            self._inverse_length(),
            Block(self._product_with_square(), self._mlp("s")),
            Block(self._attention(*self._over_length("u", v)), self._mlp("u", "g", "t")),
        ]

    def deflate(self, v: Location) -> list[Block]:
        """Return the blocks for A ← A − ‖Av‖ v vᵀ: u = v/‖Av‖, w = ‖Av‖² v, cov_j −= w_j u."""
        square = Head({("s", "one"): 1.0}, {(v, "w"): 1.0})
        remove = Head({("id", "w"): 1.0}, {("u", "cov"): -1.0})
        return [
            Block(self._product(v)),
            self._inverse_length("u"),
            Block(self._product_with_square()),
            Block(self._attention(*self._over_length(v, "u"), square), self._mlp("s", "g", "t")),
            Block(self._attention(*make_signed_pair(remove)), self._mlp("u", "w")),
        ]

    def _product(self, v: Location) -> Attention:
        """u += A v: the columns of A, weighted by the entries of v."""
        return self._attention(
            *make_signed_pair(Head({(v, "id"): 1.0}, {("cov", "u"): float(self.n)}))
        )

    def _inverse_length(self, *cleared: Location) -> Block:
        """s += ‖u‖², g += s^{−1/2} on knots."""
        square = Head({("u", "u"): 1.0}, {("one", "s"): 1.0})
        inverse = piecewise_linear("s", "g", lambda s: s**-0.5, self._squared_lengths())
        # The MLP reads the output of the attention, which includes s.
        return Block(
            self._attention(square),
            MLP.from_pieces(self.layout, [inverse, *(clear(register) for register in cleared)]),
        )

    def _product_with_square(self) -> Attention:
        """t += s g². Squares and lengths are positive scores, so a single ReLU head is exact."""
        return self._attention(Head({("g", "g"): 1.0}, {("s", "t"): 1.0}))

    def _over_length(self, source: Location, target: Location) -> tuple[Head, Head]:
        """target += source · g (3 − t)/2."""
        return (
            Head({("g", "one"): 1.0}, {(source, target): 1.5}),
            Head({("t", "g"): 1.0}, {(source, target): -0.5}),
        )

    def _squared_lengths(self) -> Float[Tensor, " knots"]:
        ends = 2 * math.log(self.least), 2 * math.log(self.most)
        return torch.linspace(*ends, self.knots, dtype=torch.float64).exp()

    def _mlp(self, *cleared: Location) -> MLP:
        return MLP.from_pieces(self.layout, [clear(register) for register in cleared])

    def _attention(self, *heads: Head) -> Attention:
        return Attention.from_heads(
            self.layout, heads, kind="relu", mask="all", normalisation="1/N"
        )
