"""In-context mixture of linear regressions: each label follows one of K hidden weight vectors.

    y = ⟨x, β_z⟩ + ϑε,    z = k with probability π_k,    x ~ N(0, I),    ε ~ N(0, 1)

The vectors β_k have random directions and the same norm, the signal; signal/ϑ is the
signal-to-noise ratio. Every instance has K start vectors, which are drawn like the true vectors or
near them (`warm`); for K > 2, EM iterations converge to the true vectors only from near ones. In
the symmetric mixture, both the true vectors and the start vectors have the form β and −β.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import (
    Distribution,
    normal_sampler,
    resolve_proportions,
    sample_sphere,
)
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class MixtureProblem(Problem):
    """A batch of instances: examples, queries, start vectors, and the true vectors if known."""

    contents: ClassVar[str] = "example, feature, query and component"

    x: Float[Tensor, "*batch n d"]
    y: Float[Tensor, "*batch n"]
    x_query: Float[Tensor, "*batch queries d"]
    start: Float[Tensor, "*batch components d"]
    betas: Float[Tensor, "*batch components d"] | None = None

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, x_query: Any, start: Any, betas: Any = None
    ) -> MixtureProblem:
        """Return a problem made from tensors, arrays or lists; a single query may omit its axis."""
        examples = RegressionProblem.from_arrays(x, y, x_query)
        truth = None if betas is None else as_tensor(betas, "betas")
        return cls(examples.x, examples.y, examples.x_query, as_tensor(start, "start"), truth)

    @property
    def examples(self) -> RegressionProblem:
        """The examples and queries, as a problem of linear regression."""
        return RegressionProblem(self.x, self.y, self.x_query)

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        return self.x.shape[-1]

    @property
    def queries(self) -> int:
        return self.x_query.shape[-2]

    @property
    def components(self) -> int:
        return self.start.shape[-2]

    @property
    def symmetric(self) -> bool:
        """Whether the start vectors are β and −β."""
        return self.components == 2 and torch.equal(self.start[..., 1, :], -self.start[..., 0, :])


class MixtureOfRegressions(Distribution):
    """A distribution over `MixtureProblem`s with one query."""

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024)"
    problem_type: ClassVar[type[Any]] = MixtureProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 12, "components": 2, "symmetric": False},
        {"d": 2, "n": 9, "components": 3, "symmetric": False, "noise": 1.0},
        {"d": 4, "n": 3, "components": 2, "symmetric": True, "noise": 0.3},
        {"d": 1, "n": 7, "components": 4, "symmetric": False, "warm": 0.2},
        {"d": 2, "n": 1, "components": 2, "symmetric": True},
        {"d": 2, "n": 6, "components": 1, "symmetric": False},
        {"d": 3, "n": 30, "components": 2, "symmetric": True, "warm": 0.5},
        {
            "d": 3,
            "n": 10,
            "components": 3,
            "symmetric": False,
            "proportions": torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64),
        },
        {
            "d": 2,
            "n": 8,
            "components": 2,
            "symmetric": True,
            "signal": 2.0,
            "proportions": torch.tensor([0.8, 0.2], dtype=torch.float64),
        },
    )

    d: int = parameter(4, "features", least=1, most=4096)
    n: int = parameter(40, "context examples", least=1, most=1_000_000)
    components: int = parameter(3, "K, the hidden weight vectors", least=1, most=1_000)
    symmetric: bool = parameter(False, "whether the weight vectors are β and −β")
    proportions: Tensor | None = parameter(
        None, "π, K positive numbers with sum 1; none means equal"
    )
    signal: float = parameter(1.0, "norm of every weight vector", least=0)
    noise: float = parameter(0.5, "ϑ, standard deviation of the labels' noise", least=0)
    warm: float | None = parameter(
        None, "distance of start and true vectors; none means independent", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symmetric and self.components != 2:
            raise InputError(f"components must be 2 if symmetric=true, got {self.components}")
        resolve_proportions(self.proportions, self.components)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> MixtureProblem:
        """Draw a batch of instances, in float64 so that every precision sees the same data."""
        normal = normal_sampler(batch, generator)
        rows = normal(self.n + 1, self.d)
        truth, offset = (sample_sphere(self.components, self.d, batch, generator) for _ in range(2))
        betas = self._mirror(self.signal * truth)
        start = self.signal * offset if self.warm is None else betas + self.warm * offset
        x, x_query = rows[..., : self.n, :], rows[..., self.n :, :]
        labels = self._assign_components(
            torch.rand(*batch, self.n, generator=generator, dtype=torch.float64)
        )
        y = (x @ betas.mT).gather(-1, labels.unsqueeze(-1)).squeeze(-1) + self.noise * normal(
            self.n
        )
        return MixtureProblem(x, y, x_query, self._mirror(start), betas).to(dtype)

    def _mirror(self, vectors: Tensor) -> Tensor:
        """Replace two vectors by β and −β if the mixture is symmetric."""
        if not self.symmetric:
            return vectors
        first = vectors[..., :1, :]
        return torch.cat([first, -first], dim=-2)

    def _assign_components(self, uniform: Tensor) -> Tensor:
        """Assign a component to each example from a uniform number."""
        ends = resolve_proportions(self.proportions, self.components).cumsum(dim=0)
        return torch.searchsorted(ends, uniform).clamp_max(self.components - 1)
