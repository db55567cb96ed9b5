"""Clustering: the share of each cluster in each point.

Equal shares say nothing and count as 0. Models that see the starting centres name clusters in their
order, as algorithms do. For others the names are matched once per prompt, for all layers together:
the permutation under which points agree most with Lloyd's algorithm from the same centres, over all
of its steps, since a cluster may lose its points on the way.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.algorithms.lloyd import Lloyd
from innerloop.identification.families.base import Answers, Family
from innerloop.problems.gaussian_mixture import ClusteringProblem

Shares = Float[Tensor, "layers batch n clusters"]
REFERENCE_STEPS = 20


class Clustering(Family):
    """Shares minus equal shares, point by point."""

    name: ClassVar[str] = "shares of clusters"
    rank: ClassVar[int] = 2

    def flatten(self, problem: Any, answers: Tensor) -> Answers:
        return (answers - 1 / answers.shape[-1]).flatten(-2)

    def measure_errors(
        self, problem: ClusteringProblem, model: Float[Tensor, "layers batch outputs"]
    ) -> list[float] | None:
        """Return the share of points outside the cluster of their origin, under the best
        permutation.
        """
        if problem.labels is None:
            return None
        found = model.unflatten(-1, (problem.n, problem.clusters)).argmax(dim=-1)
        origin = one_hot(problem.labels.long(), problem.clusters).double()
        errors = []
        for layer in found:
            table = one_hot(layer, problem.clusters).double().mT @ origin
            best = [-each[linear_sum_assignment(-each)].sum() for each in table.cpu().numpy()]
            errors.append(1 + float(np.mean(best)) / problem.n)
        return errors

    def describe_constant(self, values: Float[Tensor, " outputs"]) -> str:
        equal = float(values.abs().max()) == 0
        return "gives every cluster the same share" if equal else "clusters every prompt alike"


def match_clusters(problem: ClusteringProblem, shares: Shares) -> Shares:
    """Permute the clusters of a model to match those of algorithms from the given centres."""
    algorithm = Lloyd()
    steps = [algorithm.predict(problem, s) for s in algorithm.states(problem, REFERENCE_STEPS)]
    agreement = shares.mean(dim=0).mT @ torch.stack(steps).mean(dim=0).to(shares)
    rows = [
        np.argsort(linear_sum_assignment(-each)[1]) for each in agreement.detach().cpu().numpy()
    ]
    order = torch.as_tensor(np.stack(rows), device=shares.device)
    return shares.gather(-1, order[None, :, None, :].expand(*shares.shape))
