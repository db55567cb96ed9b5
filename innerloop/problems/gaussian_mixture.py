"""A mixture of Gaussian clouds with a common spherical covariance, and centres to start from.

x = μ_z + noise, with the centres μ drawn for each instance and the cloud z for each point. The
algorithms start from distinct points of the data, or from the centres with some noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import (
    Distribution,
    check_numbers,
    check_tensors,
    normals,
    tensor_of,
)


@dataclass(frozen=True, eq=False)
class ClusteringProblem:
    """A batch of data sets with centres to start from.

    `labels` may say which cloud each point came from; no algorithm looks at it.
    """

    x: Float[Tensor, "*batch n d"]
    start: Float[Tensor, "*batch clusters d"]
    labels: Int[Tensor, "*batch n"] | None = None

    @classmethod
    def of(cls, x: Any, start: Any) -> ClusteringProblem:
        """A problem from tensors, NumPy arrays or lists."""
        return cls(tensor_of(x), tensor_of(start))

    def __post_init__(self) -> None:
        tensors = {"x": self.x, "start": self.start}
        check_tensors(tensors, "ClusteringProblem.of takes arrays and lists")
        shapes = f"x {tuple(self.x.shape)}, start {tuple(self.start.shape)}"
        fits = self.x.ndim >= 2 and self.start.ndim == self.x.ndim
        fits = fits and self.start.shape[:-2] == self.x.shape[:-2]
        if not fits or self.start.shape[-1] != self.d:
            raise InputError(
                f"expected x (*batch, n, d), start (*batch, clusters, d); got {shapes}"
            )
        if self.labels is not None and self.labels.shape != self.x.shape[:-1]:
            raise InputError(f"labels must be one for each of the {self.n} points, or None")
        if 0 in self.x.shape or 0 in self.start.shape:
            raise InputError(f"need points and clusters; got {shapes}")
        check_numbers(tensors)

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        return self.x.shape[-1]

    @property
    def clusters(self) -> int:
        return self.start.shape[-2]

    def to(self, where: torch.dtype | torch.device | str) -> ClusteringProblem:
        """The same instances in another precision or on another device."""
        labels = self.labels
        if labels is not None and not isinstance(where, torch.dtype):
            labels = labels.to(where)
        return ClusteringProblem(self.x.to(where), self.start.to(where), labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianMixture(Distribution):
    """A distribution over `ClusteringProblem`s."""

    source: ClassVar[str] = "Yang 2025 (Transformers versus the EM algorithm)"
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
        "points", "begin at points of the data, or near the centres"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start == "points" and self.clusters > self.n:
            raise InputError(
                f"{self.clusters} clusters cannot start at {self.n} distinct points: "
                "use more points or start=near"
            )

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> ClusteringProblem:
        normal = normals(batch, generator)
        centres = self.separation * normal(self.clusters, self.d)
        labels = torch.randint(self.clusters, (*batch, self.n), generator=generator)
        place = labels.unsqueeze(-1).expand(*labels.shape, self.d)
        x = centres.gather(-2, place) + self.noise * normal(self.n, self.d)
        if self.start == "near":
            start = centres + self.noise * normal(self.clusters, self.d)
        else:
            order = torch.rand(*batch, self.n, generator=generator).argsort(dim=-1)
            chosen = order[..., : self.clusters, None].expand(*batch, self.clusters, self.d)
            start = x.gather(-2, chosen)
        return ClusteringProblem(x, start, labels).to(dtype)
