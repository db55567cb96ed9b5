"""What clustering by attention shares: data tokens, centroid tokens, and the heads between them.

Registers  data tokens hold `x` and `data` = 1; centroid token k holds `mu`, `centroid` = 1 and
           e_k in `id`; `one` is 1 on both; the rest is 0 between steps
Squares    a ReLU head, score ⟨μ_i, μ_j⟩ − B(1 − ⟨id_i, id_j⟩), hears its own token only and adds
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
from innerloop.errors import OutOfRange
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
    join,
    keys_where,
)
from innerloop.transformer.head import Blocks, Scores, summed
from innerloop.transformer.layout import Where

LEAK = 40.0
"""Tokens that must not be heard have a share of at most e^{−LEAK}."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteringConstruction(Construction, ABC):
    """A construction on up to n data tokens and K centroid tokens."""

    exact: ClassVar[bool] = False

    d: int = parameter(3, "features", least=1, most=128)
    n: int = parameter(40, "the largest number of points", least=1, most=10_000)
    clusters: int = parameter(3, "K", least=1, most=128)
    bound: float = parameter(30.0, "the largest entry of points and means", least=1e-6, most=1e4)

    @property
    @abstractmethod
    def precision(self) -> float:
        """a: what ½‖x − μ‖² is multiplied by in the shares."""

    @property
    def reach(self) -> float:
        """B, the largest |⟨x, μ⟩|."""
        return self.d * self.bound**2

    @property
    def scores(self) -> float:
        """The largest |a⟨x, μ⟩|."""
        return self.precision * self.reach

    @cached_property
    def layout(self) -> Layout:
        vectors = {"x": self.d, "mu": self.d, "mean": self.d}
        shares = {"id": self.clusters, "share": self.clusters}
        return Layout(**vectors, **shares, square=(), one=(), data=(), centroid=(), **self.more)

    @property
    def more(self) -> dict[str, int | tuple[int, ...]]:
        """Registers of a construction's own."""
        return {}

    def distributions(self) -> list[GaussianMixture]:
        """Points to start from can lie badly; a smaller number of points must do as well."""
        most = GaussianMixture(d=self.d, n=self.n, clusters=self.clusters, start="near")
        first = most if self.clusters > self.n else replace(most, start="points")
        return [first, replace(most, n=self.n // 2 + 1)]

    def accept(self, problem: ClusteringProblem) -> None:
        found, built = (f"d={part.d}, clusters={part.clusters}" for part in (problem, self))
        if found != built:
            raise OutOfRange(f"{self.name} was built for {built}; got {found}")
        if problem.n > self.n:
            raise OutOfRange(f"{self.name} was built for up to n={self.n} points, got {problem.n}")
        largest = float(torch.cat([problem.x, problem.start], dim=-2).abs().max())
        if largest > self.bound:
            raise OutOfRange(
                f"an entry of the data is {largest / self.bound:.3g} times the bound of "
                f"{self.bound:g} that {self.name} was built for: build it with a larger bound"
            )

    def context(self, problem: ClusteringProblem) -> int:
        return problem.n

    def prompt(self, problem: ClusteringProblem) -> Tensor:
        return self.encode(problem, problem.start)

    def encode(self, problem: ClusteringProblem, state: Means) -> Tensor:
        data = self.layout.tokens(x=problem.x, **self.on_data(problem), one=1.0, data=1.0)
        identity = torch.eye(self.clusters).to(state)
        centroids = self.layout.tokens(
            mu=state, id=identity, **self.on_centroids(state), one=1.0, centroid=1.0
        )
        return join(data, centroids)

    def on_data(self, problem: ClusteringProblem) -> dict[str, Tensor]:
        """What data tokens hold in registers of a construction's own."""
        return {}

    def on_centroids(self, state: Means) -> dict[str, Tensor]:
        """The same for centroid tokens."""
        return {}

    def squares(self) -> Block:
        """½‖μ‖² of each centroid."""
        own = summed({("one", "one"): -self.reach}, {("id", "id"): self.reach})
        head = Head({("mu", "mu"): 1.0}, {("one", "square"): 0.5}, gate=own)
        return Block(Attention.of(self.layout, [head], kind="relu", mask="all", normalisation="1"))

    def shares(self) -> Attention:
        """The E step."""
        score = {("x", "mu"): self.precision, ("one", "square"): -self.precision}
        return self.softmax(score, {("id", "share"): 1.0}, "centroid", 1.5 * self.scores)

    def means(self, score: Scores, reach: float, *cleared: Where) -> Block:
        """The M step, with scores up to ± reach; then clears what is no longer used."""
        placed = [gate("centroid", "mean", "mu", self.bound), clear("mu"), clear("mean")]
        return Block(
            self.softmax(score, {("x", "mean"): 1.0}, "data", reach),
            MLP.of(self.layout, [*placed, *(clear(register) for register in cleared)]),
        )

    def softmax(self, score: Scores, value: Blocks, keys: Where, reach: float) -> Attention:
        """One softmax head with scores up to ± reach that hears tokens of one kind only."""
        most = self.n + self.clusters
        head = Head(score, value, gate=keys_where(keys, 2 * reach + LEAK + math.log(most)))
        return Attention.of(self.layout, [head], kind="softmax", mask="all", normalisation="1")

    def epilogue(self) -> list[Block]:
        return [self.squares(), Block(self.shares())]

    def decode(self, problem: ClusteringProblem, stream: Tensor) -> Tensor:
        """The share of each cluster in each point."""
        return self.layout.read(stream, "share")[..., : problem.n, :]
