"""Gaussian mixture: clouds with a common spherical covariance, and initial centres.

x = μ_z + noise, with the centres μ drawn for each instance and the cloud z for each point. The
initial centres are distinct points of the data, or the true centres with some noise.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, normal_sampler
from innerloop.problems.points import PointsProblem


class ClusteringProblem(PointsProblem):
    """A batch of data sets with initial centres."""

    @property
    def clusters(self) -> int:
        return self.start.shape[-2]


class GaussianMixture(Distribution):
    """A distribution over `ClusteringProblem`s."""

    source: ClassVar[str] = "Yang 2025 (Transformers versus the EM algorithm)"
    problem_type: ClassVar[type[Any]] = ClusteringProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 2, "n": 15},
        {"d": 3, "n": 7, "separation": 1.0},
        {"d": 1, "n": 20, "clusters": 2},
        {"d": 4, "n": 12, "clusters": 4, "start": "near"},
        {"d": 2, "n": 9, "clusters": 1},
        {"d": 3, "n": 3, "clusters": 3},
    )

    d: int = parameter(3, "features", least=1, most=512)
    n: int = parameter(40, "points", least=1, most=100_000)
    clusters: int = parameter(3, "K, the number of clouds", least=1, most=512)
    separation: float = parameter(3.0, "standard deviation of a centre's entries", least=0)
    noise: float = parameter(1.0, "σ, the standard deviation of a cloud", least=0)
    start: Literal["points", "near"] = parameter(
        "points", "initial centres: points of the data, or near the true centres"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start == "points" and self.clusters > self.n:
            raise InputError(
                f"expected at least {self.clusters} points, one initial centre for each cluster, "
                f"got {self.n}: use more points or start=near"
            )

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> ClusteringProblem:
        normal = normal_sampler(batch, generator)
        centres = self.separation * normal(self.clusters, self.d)
        labels = torch.randint(self.clusters, (*batch, self.n), generator=generator)
        place = labels.unsqueeze(-1).expand(*labels.shape, self.d)
        x = centres.gather(-2, place) + self.noise * normal(self.n, self.d)
        if self.start == "near":
            start = centres + self.noise * normal(self.clusters, self.d)
        else:
            order = torch.rand(*batch, self.n, generator=generator).argsort(dim=-1)
            rows = order[..., : self.clusters, None].expand(*batch, self.clusters, self.d)
            start = x.gather(-2, rows)
        return ClusteringProblem(x, start, labels).to(dtype)
