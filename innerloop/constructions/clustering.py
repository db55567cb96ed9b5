"""Base class of clustering constructions: data tokens, centroid tokens, the heads between them.

Registers  data tokens hold `x` and `data` = 1; centroid token k holds `mu`, `centroid` = 1 and
           e_k in `id`; `one` is 1 on both; the rest is 0 between steps
Squares    a ReLU head, score ⟨μ_i, μ_j⟩ − B(1 − ⟨id_i, id_j⟩), sees its own token only and adds
           ½‖μ‖² to `square`; exact while |⟨μ_i, μ_j⟩| ≤ B
Shares     a softmax head from data tokens to centroids, score a(⟨x_i, μ_k⟩ − ½‖μ_k‖²), adds the
           shares e^{−a‖x_i − μ_k‖²/2} / Σ to `share`
Means      a softmax head from centroids to data tokens adds the mean of the points under its
           weights to `mean`, and the MLP puts it in place of `mu`
Leak       tokens of the other kind lose a score of C: twice the range of the scores and 40 more,
           so that they have a share below e⁻⁴⁰
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.em import Means
from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    clear,
    gate,
    gate_keys,
    join,
)
from innerloop.transformer.head import Blocks, Scores, sum_terms
from innerloop.transformer.layout import Location

LEAK = 40.0
"""Tokens of the other kind get an attention weight of at most e^{−LEAK}."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteringConstruction(Construction[ClusteringProblem, Means], ABC):
    """A construction on up to n data tokens and K centroid tokens."""

    exact: ClassVar[bool] = False

    d: int = parameter(3, "features", least=1, most=128)
    n: int = parameter(40, "the largest number of points", least=1, most=10_000)
    clusters: int = parameter(3, "K", least=1, most=128)
    bound: float = parameter(30.0, "the largest entry of points and means", least=1e-6, most=1e4)

    @property
    @abstractmethod
    def precision(self) -> float:
        """a, the factor of ½‖x − μ‖² in the exponent of the shares."""

    @property
    def max_product(self) -> float:
        """B, the largest |⟨x, μ⟩|."""
        return self.d * self.bound**2

    @property
    def max_score(self) -> float:
        """The largest |a⟨x, μ⟩|."""
        return self.precision * self.max_product

    @cached_property
    def layout(self) -> Layout:
        vectors = {"x": self.d, "mu": self.d, "mean": self.d}
        shares = {"id": self.clusters, "share": self.clusters}
        return Layout(
            **vectors, **shares, square=(), one=(), data=(), centroid=(), **self.extra_registers
        )

    @property
    def extra_registers(self) -> dict[str, int | tuple[int, ...]]:
        """Further registers of a subclass."""
        return {}

    def distributions(self) -> list[GaussianMixture]:
        """Return a distribution with badly placed start points, and one with fewer points."""
        near = GaussianMixture(d=self.d, n=self.n, clusters=self.clusters, start="near")
        first = near if self.clusters > self.n else replace(near, start="points")
        return [first, replace(near, n=self.n // 2 + 1)]

    def accept(self, problem: ClusteringProblem) -> None:
        given, built = (f"d={part.d}, clusters={part.clusters}" for part in (problem, self))
        if given != built:
            raise OutOfRangeError(f"{self.name} was built for {built}; got {given}")
        if problem.n > self.n:
            raise OutOfRangeError(
                f"{self.name} was built for up to n={self.n} points, got {problem.n}"
            )
        largest = float(torch.cat([problem.x, problem.start], dim=-2).detach().abs().max())
        if largest > self.bound:
            raise OutOfRangeError(
                f"an entry of the data is {largest / self.bound:.3g} times the bound of "
                f"{self.bound:g} that {self.name} was built for: build it with a larger bound"
            )

    def context_length(self, problem: ClusteringProblem) -> int:
        return problem.n

    def prompt(self, problem: ClusteringProblem) -> Tensor:
        return self.encode(problem, problem.start)

    def encode(self, problem: ClusteringProblem, state: Means) -> Tensor:
        data = self.layout.make_tokens(
            x=problem.x, **self.data_registers(problem), one=1.0, data=1.0
        )
        identity = torch.eye(self.clusters).to(state)
        centroids = self.layout.make_tokens(
            mu=state, id=identity, **self.centroid_registers(state), one=1.0, centroid=1.0
        )
        return join(data, centroids)

    def data_registers(self, problem: ClusteringProblem) -> dict[str, Tensor]:
        """Return the contents of a subclass's registers on data tokens."""
        return {}

    def centroid_registers(self, state: Means) -> dict[str, Tensor]:
        """Return the contents of a subclass's registers on centroid tokens."""
        return {}

    def square_block(self) -> Block:
        """Return the block that computes ½‖μ‖² of each centroid."""
        own = sum_terms({("one", "one"): -self.max_product}, {("id", "id"): self.max_product})
        head = Head({("mu", "mu"): 1.0}, {("one", "square"): 0.5}, gate=own)
        return Block(
            Attention.from_heads(self.layout, [head], kind="relu", mask="all", normalisation="1")
        )

    def share_attention(self) -> Attention:
        """Return the attention of the E step."""
        score = {("x", "mu"): self.precision, ("one", "square"): -self.precision}
        return self.softmax_attention(
            score, {("id", "share"): 1.0}, "centroid", 1.5 * self.max_score
        )

    def mean_block(self, score: Scores, max_score: float, *cleared: Location) -> Block:
        """Return the block of the M step; it also clears registers that are no longer used."""
        moves = [gate("centroid", "mean", "mu", self.bound), clear("mu"), clear("mean")]
        return Block(
            self.softmax_attention(score, {("x", "mean"): 1.0}, "data", max_score),
            MLP.from_pieces(self.layout, [*moves, *(clear(register) for register in cleared)]),
        )

    def softmax_attention(
        self, score: Scores, value: Blocks, keys: Location, max_score: float
    ) -> Attention:
        """Return a softmax head that attends to one kind of token, with scores to ± `max_score`."""
        tokens = self.n + self.clusters
        head = Head(score, value, gate=gate_keys(keys, 2 * max_score + LEAK + math.log(tokens)))
        return Attention.from_heads(
            self.layout, [head], kind="softmax", mask="all", normalisation="1"
        )

    def epilogue(self) -> list[Block]:
        return [self.square_block(), Block(self.share_attention())]

    def decode(self, problem: ClusteringProblem, stream: Tensor) -> Tensor:
        """Read the share of each cluster in each point."""
        return self.layout.read(stream, "share")[..., : problem.n, :]
