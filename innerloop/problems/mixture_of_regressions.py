"""In-context mixture of linear regressions: each label follows one of K hidden weight vectors.

    y = ⟨x, β_z⟩ + ϑε,    z = k with probability π_k,    x ~ N(0, I),    ε ~ N(0, 1)

The vectors β_k have random directions and one norm, the signal; signal/ϑ is the signal-to-noise
ratio. K start vectors come with every instance: random as the truth is, or near it (`warm`), which
iterations need to succeed for K > 2. The symmetric mixture is β and −β, and so is its start.
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
    mixture_proportions,
    normals,
    on_the_sphere,
    tensor_of,
)
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class MixtureProblem:
    """One batch of instances: examples, a query, start vectors, and the truth where it is known."""

    x: Float[Tensor, "*batch n d"]
    y: Float[Tensor, "*batch n"]
    x_query: Float[Tensor, "*batch queries d"]
    start: Float[Tensor, "*batch components d"]
    betas: Float[Tensor, "*batch components d"] | None = None

    @classmethod
    def of(cls, x: Any, y: Any, x_query: Any, start: Any, betas: Any = None) -> MixtureProblem:
        """A problem from what `tensor_of` takes; one query may come without its axis."""
        examples = RegressionProblem.of(x, y, x_query)
        truth = None if betas is None else tensor_of(betas)
        return cls(examples.x, examples.y, examples.x_query, tensor_of(start), truth)

    def __post_init__(self) -> None:
        batch, d = tuple(self.examples.x.shape[:-2]), self.d
        vectors = {"start": self.start}
        if self.betas is not None:
            vectors["betas"] = self.betas
        check_tensors(vectors, "MixtureProblem.of takes arrays, lists")
        for name, given in vectors.items():
            shape = tuple(given.shape)
            fits = given.ndim >= 2 and 0 not in shape and shape[-2:] == (self.components, d)
            if not fits or shape[:-2] != batch:
                expected = ", ".join([*map(str, batch), "components", str(d)])
                raise InputError(f"{name} must be ({expected}), the same for all; got {shape}")
        check_numbers({"x": self.x, **vectors})

    @property
    def examples(self) -> RegressionProblem:
        """The data alone, whose shapes and numbers are checked when it is made."""
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

    def to(self, where: torch.dtype | torch.device | str) -> MixtureProblem:
        """The same instances in another precision or on another device."""
        data = self.examples.to(where)
        truth = None if self.betas is None else self.betas.to(where)
        return MixtureProblem(data.x, data.y, data.x_query, self.start.to(where), truth)


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureOfRegressions(Distribution):
    """A distribution over `MixtureProblem`s with one query."""

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024)"
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
    symmetric: bool = parameter(False, "whether they are β and −β")
    proportions: Tensor | None = parameter(None, "π, K positive numbers with sum 1; equal if none")
    signal: float = parameter(1.0, "norm of every weight vector", least=0)
    noise: float = parameter(0.5, "ϑ, standard deviation of the labels' noise", least=0)
    warm: float | None = parameter(None, "distance of the start from the truth; none: far", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symmetric and self.components != 2:
            raise InputError(f"a symmetric mixture has 2 components, got {self.components}")
        mixture_proportions(self.proportions, self.components)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> MixtureProblem:
        """A batch of instances, drawn in float64 so that every precision sees the same data."""
        normal = normals(batch, generator)
        rows = normal(self.n + 1, self.d)
        truth, away = (on_the_sphere(self.components, self.d, batch, generator) for _ in range(2))
        betas = self._mirrored(self.signal * truth)
        start = self.signal * away if self.warm is None else betas + self.warm * away
        x, x_query = rows[..., : self.n, :], rows[..., self.n :, :]
        chosen = self._labels(torch.rand(*batch, self.n, generator=generator, dtype=torch.float64))
        y = (x @ betas.mT).gather(-1, chosen.unsqueeze(-1)).squeeze(-1) + self.noise * normal(
            self.n
        )
        return MixtureProblem(x, y, x_query, self._mirrored(start), betas).to(dtype)

    def _mirrored(self, vectors: Tensor) -> Tensor:
        """β and −β in place of two vectors, where the mixture is symmetric."""
        if not self.symmetric:
            return vectors
        first = vectors[..., :1, :]
        return torch.cat([first, -first], dim=-2)

    def _labels(self, uniform: Tensor) -> Tensor:
        """The component of each example, from a uniform number."""
        ends = mixture_proportions(self.proportions, self.components).cumsum(dim=0)
        return torch.searchsorted(ends, uniform).clamp_max(self.components - 1)
