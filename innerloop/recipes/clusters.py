"""Base class of recipes that learn to tell clouds of points apart, without the names of clouds.

Loss      the cross-entropy of the clouds that the points came from, least over all permutations
Measures  the adjusted Rand index and normalised mutual information of scikit-learn, and the share
          of points in a wrong cluster, least over permutations
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from innerloop.models.encoder import Reading
from innerloop.recipes.points import PointsObjective, PointsRecipe, least_over_names


@dataclass(frozen=True, kw_only=True, eq=False)
class ClustersRecipe(PointsRecipe, ABC):
    """An encoder of points whose tokens are read out as the logits of clusters."""

    @property
    def reading(self) -> Reading:
        return "points"

    @abstractmethod
    def name_clouds(self, problem: Any) -> Int[Tensor, "batch n"]:
        """The number of the cloud that each point came from."""

    @abstractmethod
    def make_logits(self, read: Tensor) -> Float[Tensor, "*batch n clusters"]:
        """Logits of the clusters from what was read out."""

    def shape_answers(self, read: Tensor) -> Tensor:
        """The share of each cluster in each point."""
        return self.make_logits(read).softmax(dim=-1)

    def build_objective(self) -> PointsObjective:
        return PointsObjective(
            self.build_distribution(), self.batch, self.losses, self.measure, pool=self.pool
        )

    def losses(self, model: nn.Module, problem: Any) -> Float[Tensor, " batch"]:
        """The cross-entropy of every instance."""
        logits = self.make_logits(self.predict(model, problem))
        return least_over_names(logits, self.name_clouds(problem))

    def measure(self, model: nn.Module, problem: Any) -> dict[str, float]:
        """Compare the most likely clusters with the clouds."""
        found = self.make_logits(self.predict(model, problem)).argmax(dim=-1)
        return score_clusters(found, self.name_clouds(problem))


def score_clusters(
    found: Int[Tensor, "batch n"], clouds: Int[Tensor, "batch n"]
) -> dict[str, float]:
    """Score clusters that have no names: ARI, NMI, and the least share of wrong points."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    pairs = list(zip(clouds.cpu().numpy(), found.cpu().numpy(), strict=True))
    return {
        "ari": float(np.mean([adjusted_rand_score(*pair) for pair in pairs])),
        "nmi": float(np.mean([normalized_mutual_info_score(*pair) for pair in pairs])),
        "wrong": float(np.mean([count_wrong(*pair) for pair in pairs])),
    }


def count_wrong(clouds: np.ndarray, found: np.ndarray) -> float:
    """The share of points in another cluster than their cloud's, over the best names."""
    size = int(max(clouds.max(), found.max())) + 1
    table = np.zeros((size, size))
    np.add.at(table, (clouds.astype(int), found.astype(int)), 1)
    rows, columns = linear_sum_assignment(-table)
    return 1 - float(table[rows, columns].sum()) / len(clouds)
