"""What the constructions for in-context linear regression share."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.errors import InputError, OutOfRange
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionConstruction(Construction, ABC):
    """A construction that reads n examples and predicts at the query tokens, which come last."""

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "context examples it is certified on", least=1, most=10_000)
    kappa: float = parameter(1.0, "condition number of the problems it is certified on", least=1)
    covariance: Tensor | None = parameter(None, "Σ of the problems it is certified on, d×d")

    def distributions(self) -> list[LinearRegression]:
        """Noisy labels, several queries, two sizes: nothing for a lucky weight to hide behind."""
        most = LinearRegression(
            d=self.d,
            n=self.n,
            noise=0.5,
            queries=2,
            kappa=self.kappa,
            covariance=self.covariance,
        )
        return [most, replace(most, n=self.n // 2 + 1, queries=3)]

    def accept(self, problem: RegressionProblem) -> None:
        if problem.d != self.d:
            raise OutOfRange(f"{self.name} was built for d={self.d}, got d={problem.d}")

    def context(self, problem: RegressionProblem) -> int:
        return problem.n

    def at_queries(self, problem: RegressionProblem, stream: Tensor, register: str) -> Tensor:
        """A scalar register of the query tokens."""
        return self.layout.read(stream, register)[..., problem.n :]


Matrices = Tensor | Literal["random", "identity"]
"""A matrix per step given outright, random ones around a multiple of I, or the multiple itself."""


def matrices(
    given: Matrices, scale: float | None, usual: float, name: str, steps: int, d: int, seed: int
) -> Tensor:
    """One d×d matrix per step, at `scale` (or the `usual` one) where they are not given outright.

    "random" draws scale·(I + 0.3 G/√d) with Gaussian G: no two commute, none is symmetric.
    """
    if isinstance(given, Tensor):
        if scale is not None:
            raise InputError(f"{name} are given outright: a scale of {scale} would be ignored")
        if given.shape not in ((d, d), (steps, d, d)):
            raise InputError(
                f"{name} must be {d}×{d} or {steps}×{d}×{d}, got {'×'.join(map(str, given.shape))}"
            )
        return given.expand(steps, d, d)
    scale = usual if scale is None else scale
    identity = torch.eye(d, dtype=torch.float64).expand(steps, d, d)
    if given == "identity":
        return scale * identity
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, d, d, generator=generator, dtype=torch.float64)
    return scale * (identity + 0.3 * noise / d**0.5)
