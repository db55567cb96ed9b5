"""Principal components of data whose covariance has fixed eigenvalues, and starting vectors.

Rows x are N(0, Σ), where Σ has a new random rotation for every instance. The starting vectors are
uniform on the unit sphere. The solution is the leading eigenvectors of A = (1/n) Σᵢ xᵢ xᵢᵀ.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, sample_sphere
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.points import PointsProblem


class PCAProblem(PointsProblem):
    """A batch of data sets, each with one starting vector for every component."""

    @classmethod
    def from_arrays(cls, x: Any, start: Any) -> PCAProblem:
        """Return a problem made from tensors, arrays or lists.

        A single starting vector may omit its axis.
        """
        x, start = as_tensor(x, "x"), as_tensor(start, "start")
        return cls(x, start.unsqueeze(-2) if start.ndim == x.ndim - 1 > 0 else start)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components > self.d:
            raise InputError(f"expected 1 to d={self.d} starting vectors, got {self.components}")
        if not bool((self.start.norm(dim=-1) > 0).all()):
            raise InputError("expected starting vectors that are not 0, got one that is 0")

    @property
    def components(self) -> int:
        return self.start.shape[-2]

    @property
    def covariance(self) -> Float[Tensor, "*batch d d"]:
        """The covariance A = (1/n) Σᵢ xᵢ xᵢᵀ, without centring."""
        return self.x.mT @ self.x / self.n


class PrincipalComponents(Distribution):
    """A distribution over `PCAProblem`s; each eigenvalue of Σ is `gap` times the previous one."""

    source: ClassVar[str] = "Q. Liu 2025, Algorithm 1"
    problem_type: ClassVar[type[Any]] = PCAProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 9},
        {"d": 4, "n": 4},
        {"d": 5, "n": 30, "gap": 0.3},
        {"d": 6, "n": 12, "gap": 0.8},
        {"d": 7, "n": 8, "gap": 0.6},
    )

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "data points", least=1, most=100_000)
    components: int = parameter(2, "number of eigenvectors", least=1)
    gap: float = parameter(
        0.5, "ratio of each eigenvalue of Σ to the one before", least=0.01, most=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components > self.d:
            raise InputError(f"components must be at most d={self.d}, got {self.components}")

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> PCAProblem:
        spectrum = self.gap ** torch.arange(self.d, dtype=torch.float64)
        rows = LinearRegression(d=self.d, n=self.n, spectrum=spectrum)
        x = rows.sample(*batch, generator=generator).x
        start = sample_sphere(self.components, self.d, batch, generator)
        return PCAProblem(x, start).to(dtype)
