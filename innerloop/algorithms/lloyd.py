"""Lloyd's algorithm (k-means): assign points to the nearest mean, move means to the mean of points.

A cluster without points moves to the mean of all points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.em import Means, Shares, half_squared_distances
from innerloop.problems.gaussian_mixture import ClusteringProblem


@dataclass(frozen=True, eq=False)
class Lloyd(Algorithm[ClusteringProblem, Means]):
    """Lloyd's algorithm; the state is the means, the prediction the one-hot cluster of each
    point."""

    source: ClassVar[str] = "Yang 2025 (Transformers versus the EM algorithm)"
    problem_type: ClassVar = ClusteringProblem

    def init(self, problem: ClusteringProblem) -> Means:
        return problem.start

    def step(self, problem: ClusteringProblem, state: Means, k: int) -> Means:
        members = self.predict(problem, state)
        counts = members.sum(dim=-2).unsqueeze(-1)
        own = members.mT @ problem.x / counts.clamp_min(1)
        return torch.where(counts > 0, own, problem.x.mean(dim=-2, keepdim=True))

    def predict(self, problem: ClusteringProblem, state: Means) -> Shares:
        nearest = half_squared_distances(problem, state).argmin(dim=-1)
        return torch.nn.functional.one_hot(nearest, problem.clusters).to(problem.x)


def margin(problem: ClusteringProblem, means: Means) -> Float[Tensor, ""]:
    """Return the smallest gap in ½‖x − μ‖² between a point's nearest and second nearest mean.

    It is ∞ for one cluster.
    """
    distances = half_squared_distances(problem, means)
    if distances.shape[-1] == 1:
        return distances.new_tensor(torch.inf)
    first, second = distances.topk(2, dim=-1, largest=False).values.unbind(dim=-1)
    return (second - first).min()
