"""In-context sparse recovery: linear regression with few nonzero weights.

Rows x are N(0, diag(variances)); the weights are Gaussian on a random support, which may be
restricted to the first entries. The paper's setting is d = 20, n = 10, sparsity 3, without noise.
Its fixed X is drawn once and shared by all instances, whose queries still differ.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.limits import SEED_BITS
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, normal_sampler
from innerloop.problems.linear_regression import RegressionProblem


class SparseRecovery(Distribution):
    """A distribution over `RegressionProblem`s with sparse weights and one query."""

    source: ClassVar[str] = "R. Liu et al. 2025, sections 4.1 and 6"
    problem_type: ClassVar[type[Any]] = RegressionProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 4, "n": 6, "sparsity": 2},
        {"d": 8, "n": 3, "sparsity": 2, "noise": 0.3},
        {"d": 3, "n": 1, "sparsity": 1},
        {"d": 1, "n": 4, "sparsity": 1},
        {"d": 6, "n": 10, "sparsity": 2, "support": 3},
        {"d": 3, "n": 12, "sparsity": 3, "variances": torch.tensor([1.0, 4.0, 0.25])},
        {"d": 4, "n": 3, "sparsity": 2, "fixed": 7},
    )

    d: int = parameter(20, "features", least=1, most=4096)
    n: int = parameter(10, "context examples", least=1, most=1_000_000)
    sparsity: int = parameter(3, "nonzero entries of the weights", least=1)
    support: int | None = parameter(
        None, "number of leading entries that contain the support", least=1
    )
    noise: float = parameter(0.0, "standard deviation of the context labels' noise", least=0)
    variances: Tensor | None = parameter(None, "variance of each feature; none means 1")
    fixed: int | None = parameter(
        None,
        "seed of one X for all instances; none draws one X per instance",
        least=0,
        most=2**SEED_BITS - 1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        within = self.d if self.support is None else self.support
        if within > self.d:
            raise InputError(f"support must be at most d={self.d}, got {within}")
        if self.sparsity > within:
            raise InputError(f"sparsity must be at most {within}, got {self.sparsity}")
        if self.variances is not None and (
            self.variances.shape != (self.d,) or not bool((self.variances > 0).all())
        ):
            raise InputError(f"variances must be {self.d} positive numbers")

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> RegressionProblem:
        """Draw a batch of instances, in float64 so that every precision sees the same data."""
        normal = normal_sampler(batch, generator)
        rows = self._scale_rows(normal(self.n + 1, self.d))
        within = self.d if self.support is None else self.support
        # The positions of the largest of independent uniform numbers are a random support.
        lots = torch.rand(*batch, within, generator=generator, dtype=torch.float64)
        places = lots.topk(self.sparsity, dim=-1).indices
        weights = torch.zeros(*batch, self.d, dtype=torch.float64)
        weights.scatter_(-1, places, normal(self.sparsity))
        x, x_query = rows[..., : self.n, :], rows[..., self.n :, :]
        if self.fixed is not None:
            x = self.draw_measurements(self.fixed).expand_as(x)
        y = (x @ weights.unsqueeze(-1)).squeeze(-1)
        if self.noise:
            y = y + self.noise * normal(self.n)
        return RegressionProblem(x, y, x_query, weights).to(dtype)

    def draw_measurements(self, seed: int) -> Float[Tensor, "n d"]:
        """Draw the shared X from this distribution; equal seeds give equal X."""
        normal = normal_sampler((), torch.Generator().manual_seed(seed))
        return self._scale_rows(normal(self.n, self.d))

    def _scale_rows(self, rows: Tensor) -> Tensor:
        return rows if self.variances is None else rows * self.variances.sqrt()
