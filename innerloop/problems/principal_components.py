"""Principal components: data whose covariance has a given spectrum, and vectors to start from.

Rows x are N(0, Σ), Σ with a fresh random rotation for every instance; the starting vectors are
uniform on the unit sphere. Wanted are the leading eigenvectors of A = (1/n) Σᵢ xᵢ xᵢᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import (
    Distribution,
    check_numbers,
    check_tensors,
    on_the_sphere,
    tensor_of,
)
from innerloop.problems.linear_regression import LinearRegression


@dataclass(frozen=True, eq=False)
class PCAProblem:
    """A batch of data sets, each with a starting vector for every component that is wanted.

    Where the points come from two clouds, `labels` may say from which; no algorithm looks at it.
    """

    x: Float[Tensor, "*batch n d"]
    start: Float[Tensor, "*batch components d"]
    labels: Float[Tensor, "*batch n"] | None = None

    @classmethod
    def of(cls, x: Any, start: Any) -> PCAProblem:
        """A problem from tensors, arrays or lists; one starting vector needs no axis."""
        x, start = tensor_of(x), tensor_of(start)
        return cls(x, start.unsqueeze(-2) if start.ndim == x.ndim - 1 else start)

    def __post_init__(self) -> None:
        tensors = {"x": self.x, "start": self.start}
        check_tensors(tensors, "PCAProblem.of takes arrays and lists")
        shapes = f"x {tuple(self.x.shape)}, start {tuple(self.start.shape)}"
        fits = self.x.ndim >= 2 and self.start.ndim == self.x.ndim
        fits = fits and self.start.shape[:-2] == self.x.shape[:-2]
        if not fits or self.start.shape[-1] != self.x.shape[-1]:
            raise InputError(f"expected x (*batch, n, d), start (*batch, components, d); {shapes}")
        if self.components > self.d or 0 in self.x.shape or 0 in self.start.shape:
            raise InputError(f"need data and 1 to d components; got {shapes}")
        check_numbers(tensors)
        if not bool((self.start.norm(dim=-1) > 0).all()):
            raise InputError("a starting vector must not be zero")
        if self.labels is not None and (
            self.labels.shape != self.x.shape[:-1] or not bool((self.labels.abs() == 1).all())
        ):
            raise InputError(f"labels must be ±1, one for each of the {self.n} points, or None")

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        return self.x.shape[-1]

    @property
    def components(self) -> int:
        return self.start.shape[-2]

    @property
    def covariance(self) -> Float[Tensor, "*batch d d"]:
        """A = (1/n) Σᵢ xᵢ xᵢᵀ, without centring."""
        return self.x.mT @ self.x / self.n

    def to(self, where: torch.dtype | torch.device | str) -> PCAProblem:
        """The same instances in another precision or on another device."""
        labels = None if self.labels is None else self.labels.to(where)
        return PCAProblem(self.x.to(where), self.start.to(where), labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class PrincipalComponents(Distribution):
    """A distribution over `PCAProblem`s; the spectrum falls by `gap` from one eigenvalue on."""

    source: ClassVar[str] = "Q. Liu 2025, Algorithm 1"
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 9},
        {"d": 4, "n": 4},
        {"d": 5, "n": 30, "gap": 0.3},
        {"d": 6, "n": 12, "gap": 0.8},
        {"d": 7, "n": 8, "gap": 0.6},
    )

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "data points", least=1, most=100_000)
    components: int = parameter(2, "eigenvectors wanted", least=1)
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
        start = on_the_sphere(self.components, self.d, batch, generator)
        return PCAProblem(x, start).to(dtype)
