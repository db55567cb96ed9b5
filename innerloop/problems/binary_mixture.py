"""A mixture of two Gaussian clouds whose points are to be separated, and a starting vector.

x = c ± μ + noise with a random sign for each point. The centre c, the direction of μ and the
starting vector are drawn for each instance.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, normal_sampler, sample_sphere
from innerloop.problems.principal_components import PCAProblem


class BinaryMixture(Distribution):
    """A distribution over `PCAProblem`s with labels."""

    source: ClassVar[str] = "Yang 2025 (Learning spectral methods by transformers)"
    problem_type: ClassVar[type[Any]] = PCAProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 8},
        {"d": 4, "n": 4},
        {"d": 5, "n": 30, "separation": 0.0},
        {"d": 2, "n": 7, "separation": 3.0, "balance": 0.2},
        {"d": 1, "n": 3},
        {"d": 6, "n": 25, "offset": 5.0},
    )

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "points", least=1, most=100_000)
    separation: float = parameter(2.0, "‖μ‖, in standard deviations of the noise", least=0)
    balance: float = parameter(0.5, "share of the points with sign +1", least=0, most=1)
    offset: float = parameter(1.0, "standard deviation of each entry of the centre c", least=0)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> PCAProblem:
        normal = normal_sampler(batch, generator)
        coin = torch.rand(*batch, self.n, generator=generator, dtype=torch.float64)
        labels = torch.where(coin < self.balance, 1.0, -1.0).to(torch.float64)
        mean = self.separation * sample_sphere(1, self.d, batch, generator)
        noise = normal(self.n, self.d)
        x = self.offset * normal(1, self.d) + labels.unsqueeze(-1) * mean + noise
        start = sample_sphere(1, self.d, batch, generator)
        return PCAProblem(x, start, labels).to(dtype)
