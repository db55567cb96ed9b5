"""Base class of recipes that learn to cluster points; the numbering of the clusters is arbitrary.

Loss      the cross-entropy with the true clouds, minimised over all permutations of the clusters
Measures  the adjusted Rand index, the normalised mutual information, and the share of points in a
          wrong cluster, minimised over permutations. They equal scikit-learn's, for whole batches
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.models.encoder import Reading
from innerloop.recipes.points import PointsRecipe, least_over_names

Table = Float[Tensor, "batch classes others"]


class ClustersRecipe(PointsRecipe, ABC):
    """An encoder of points whose read-out gives the logits of each point's cluster."""

    @property
    def reading(self) -> Reading:
        return "points"

    @abstractmethod
    def name_clouds(self, problem: Any) -> Int[Tensor, "batch n"]:
        """Return the number of the cloud from which each point was drawn."""

    @abstractmethod
    def make_logits(self, read: Tensor) -> Float[Tensor, "*batch n clusters"]:
        """Convert the output of the read-out to logits of the clusters."""

    def shape_answers(self, read: Tensor) -> Tensor:
        """Return the probability of each cluster for each point."""
        return self.make_logits(read).softmax(dim=-1)

    def find_targets(self, problem: Any) -> Int[Tensor, "batch n"]:
        return self.name_clouds(problem)

    def compare(self, read: Tensor, targets: Int[Tensor, "batch n"]) -> Float[Tensor, " batch"]:
        """Compute the cross-entropy of every instance."""
        return least_over_names(self.make_logits(read), targets)

    def measure(self, model: nn.Module, problem: Any) -> dict[str, float]:
        """Compare the most probable clusters with the true clouds."""
        labels = self.make_logits(self.predict(model, problem)).argmax(dim=-1)
        return score_clusters(labels, self.name_clouds(problem))


def score_clusters(
    clusters: Int[Tensor, "batch n"], clouds: Int[Tensor, "batch n"]
) -> dict[str, float]:
    """Compare clusters with true clouds: means of ARI, NMI and the share of wrong points."""
    table = count_pairs(clouds, clusters)
    return {
        "ari": float(adjusted_rand_index(table).mean()),
        "nmi": float(mutual_information(table).mean()),
        "wrong": float(1 - (best_over_names(table) / table.sum(dim=(-2, -1))).mean()),
    }


def count_pairs(one: Int[Tensor, "batch n"], other: Int[Tensor, "batch n"]) -> Table:
    """Count the points that are in class i of one partition and in class j of the other."""
    size = int(max(one.max(), other.max())) + 1
    if min(int(one.min()), int(other.min())) < 0:
        raise InputError("expected classes numbered from 0, got a negative number")
    first, second = (
        torch.nn.functional.one_hot(each.long(), size).double() for each in (one, other)
    )
    return first.mT @ second


def adjusted_rand_index(table: Table) -> Float[Tensor, " batch"]:
    """Compute the adjusted Rand index; it is 1 if both partitions are trivial in the same way."""

    def pairs(count: Tensor) -> Tensor:
        return (count * (count - 1) / 2).sum(dim=-1)

    both = pairs(table.flatten(-2))
    rows, columns = pairs(table.sum(dim=-1)), pairs(table.sum(dim=-2))
    expected = rows * columns / pairs(table.sum(dim=(-2, -1)).unsqueeze(-1)).clamp_min(1.0)
    spread = (rows + columns) / 2 - expected
    return torch.where(spread > 0, (both - expected) / spread.clamp_min(1e-300), 1.0)


def mutual_information(table: Table) -> Float[Tensor, " batch"]:
    """Compute the mutual information over the mean of both entropies; it is 1 if both are 0."""
    share = table / table.sum(dim=(-2, -1), keepdim=True)

    def entropy(shares: Tensor) -> Tensor:
        return -torch.xlogy(shares, shares).sum(dim=-1)

    one, other = entropy(share.sum(dim=-1)), entropy(share.sum(dim=-2))
    mean = (one + other) / 2
    shared = one + other - entropy(share.flatten(-2))
    return torch.where(mean > 1e-12, shared / mean.clamp_min(1e-300), 1.0).clamp(0.0, 1.0)


def best_over_names(table: Table) -> Float[Tensor, " batch"]:
    """Return the number of points that agree, maximised over permutations of the clusters."""
    counts = table.cpu().numpy()
    rows, columns = zip(*(linear_sum_assignment(-each) for each in counts), strict=True)
    matches = [each[i, j].sum() for each, i, j in zip(counts, rows, columns, strict=True)]
    return torch.tensor(matches, dtype=torch.float64, device=table.device)
