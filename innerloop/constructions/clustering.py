"""Base class of clustering constructions: data tokens, centroid tokens, the heads between them.

Registers  data tokens have `x` and `data` = 1; centroid token k has `mu`, `centroid` = 1 and e_k in
           `id`; `one` is 1 on both; the other registers are 0 between steps
Squares    a ReLU head with score ⟨μ_i, μ_j⟩ − B(1 − ⟨id_i, id_j⟩) attends only to its own token and
           computes ½‖μ‖², exactly while |⟨μ_i, μ_j⟩| ≤ B
Shares     a softmax head from data tokens to centroids with score a(⟨x_i, μ_k⟩ − ½‖μ_k‖²) computes
           the shares e^{−a‖x_i − μ_k‖²/2} / Σ
Means      a softmax head from centroids to data tokens computes the mean of the points with its
           attention weights, and the MLP replaces `mu` by this mean
Leak       scores of tokens of the other kind are lowered by C, which is twice the range of scores
           plus 40, so that these tokens have a share below e⁻⁴⁰
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from innerloop.language import dot, gate, own_total, relu, softmax
from innerloop.language.classes import PointsProgram, Registers, parameter

LEAK = 40.0
"""Tokens of the other kind get an attention weight of at most e^{−LEAK}."""


def make_chooser(me: Any, own: Any) -> Callable[[Any], Any]:
    """Return the E head, which averages over the means by distance and prior."""
    me.square = own_total(lambda j: 0.5 * relu(dot(me.mu, j.mu)), "id", own.max_product)

    def score(j: Any) -> Any:
        return own.precision * (dot(me.x, j.mu) - j.square) + (own.prior @ j.id)[0]

    return lambda value: softmax(score, value, where=lambda j: j.centroid, reach=own.share_reach)


def move_means(me: Any, own: Any, score: Callable[[Any], Any]) -> None:
    """Move each mean to the mean of the points under softmax weights: the M head."""
    middle = softmax(score, lambda j: j.x, where=lambda j: j.data, reach=own.mean_reach)
    me.mu = gate(me.centroid, middle, own.bound)


def share(me: Any, own: Any) -> Any:
    """Return the share of each cluster in this token's point."""
    return make_chooser(me, own)(lambda j: j.id)


class ClusteringConstruction(PointsProgram, ABC):
    """A construction on up to n data tokens and K centroid tokens."""

    exact = False
    looped = True
    takes = "up to"
    within = {"x": "bound", "mu": "bound"}
    usage_by_accept = True  # means are averages of points

    n: int = parameter(40, "the largest number of points", least=1, most=10_000)
    bound: float = parameter(30.0, "the largest entry of points and means", least=1e-6, most=1e4)

    @property
    @abstractmethod
    def precision(self) -> float:
        """The factor a of ½‖x − μ‖² in the exponent of the shares."""

    @property
    def prior(self) -> Tensor:
        """The logarithms of the clusters' weights: one row, used in all steps."""
        return torch.zeros(1, 1, self.clusters, dtype=torch.float64)

    @property
    def max_product(self) -> float:
        """The largest |⟨x, μ⟩|, B."""
        return self.d * self.bound**2

    @property
    def max_level(self) -> float:
        """The largest |score| of the E head: 3/2 aB plus the largest |log prior|."""
        return 1.5 * self.precision * self.max_product + float(self.prior.abs().max())

    @property
    def share_reach(self) -> float:
        """The constant C of the E head (see Leak in the module's header)."""
        return self.find_reach(self.max_level)

    def find_reach(self, max_score: float) -> float:
        """Return C for scores up to ± `max_score`."""
        return 2 * max_score + LEAK + math.log(self.n + self.clusters)

    def represent(self, filled: Registers, state: Any) -> Registers:
        points = filled["mu"][..., : -self.clusters, :]
        return {"mu": torch.cat([points, state], dim=-2)}
