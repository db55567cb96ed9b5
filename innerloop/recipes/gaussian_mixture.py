"""A transformer learns to cluster the points of a Gaussian mixture.

Model     3 layers of softmax attention, 2 heads, width 64, as in the source
Training  the source uses Adam with rate 5e-4, multiplied by 0.995 in each of 300 iterations; the
          defaults train longer, because the loss hardly falls in 300 steps
Starts    prompts contain tokens with initial centres, as EM needs them, or only points
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.constructions.em import EMConstruction
from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.recipes.clusters import ClustersRecipe
from innerloop.recipes.points import MAX_NAMES
from innerloop.transformer import join

KNOTS = 32
"""Number of knots of the construction whose weights are the initial weights."""
LEAST_SHARE = 1e-6
"""Lower bound of the shares in the read-out, so that they have a logarithm."""


class GaussianMixtureRecipe(ClustersRecipe):
    """An encoder that assigns each data point to one of K clouds."""

    source: ClassVar[str] = "Yang 2025 (Transformers versus the EM algorithm)"
    small: ClassVar = {"d": 2, "n": 5, "clusters": 2, "width": 8, "hidden": 4, "batch": 4}
    answer: ClassVar[str] = "share"

    d: int = parameter(2, "features", least=1, most=64)
    n: int = parameter(40, "points", least=1, most=10_000)
    clusters: int = parameter(3, "K, the number of clouds", least=1, most=MAX_NAMES)
    separation: float = parameter(3.0, "standard deviation of a centre's entries", least=0)
    noise: float = parameter(1.0, "σ, the standard deviation of a cloud", least=1e-3)
    starts: bool = parameter(False, "add tokens with initial centres to prompts")
    kind: Literal["linear", "relu", "softmax"] = parameter("softmax", "kind of attention")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start != "random" and not self.starts:
            raise InputError(f"start={self.start} uses EM, which needs centres: set starts=true")
        if self.clusters > self.n:
            raise InputError(f"clusters must be at most n={self.n}, got {self.clusters}")

    def check(self, problem: ClusteringProblem) -> None:
        super().check(problem)
        if problem.n < self.clusters:
            raise InputError(
                f"{self.clusters} clusters need at least as many points, got {problem.n}"
            )
        if self.starts and problem.clusters != self.clusters:
            raise InputError(
                f"the model starts from {self.clusters} centres, got {problem.clusters}"
            )

    def build_distribution(self) -> GaussianMixture:
        return GaussianMixture(
            d=self.d,
            n=self.n,
            clusters=self.clusters,
            separation=self.separation,
            noise=self.noise,
        )

    @property
    def registers(self) -> dict[str, Any]:
        extra = {"id": self.clusters, "centre": ()} if self.starts else {}
        return {"x": self.d, "one": (), **extra}

    @property
    def outputs(self) -> int:
        return self.clusters

    def fill_registers(self, problem: ClusteringProblem) -> Tensor:
        data = self.layout.make_tokens(x=problem.x, one=1.0)
        if not self.starts:
            return data
        names = torch.eye(self.clusters).to(problem.x)
        centres = self.layout.make_tokens(x=problem.start, id=names, centre=1.0, one=1.0)
        return join(data, centres)

    def build_construction(self) -> Construction:
        return EMConstruction(
            d=self.d,
            n=self.n,
            clusters=self.clusters,
            steps=self.blocks,
            noise=self.noise,
            knots=KNOTS,
        )

    def make_logits(self, read: Tensor) -> Tensor:
        # The read-out of a construction returns shares, a random one returns logits.
        return read if self.start == "random" else read.clamp_min(LEAST_SHARE).log()

    def name_clouds(self, problem: ClusteringProblem) -> Int[Tensor, "batch n"]:
        if problem.labels is None:
            raise InputError(
                "expected points with labels, which the loss compares, got points without"
            )
        return problem.labels.long()
