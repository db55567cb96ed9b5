"""Base class of the constructions for in-context linear regression."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Generic

from torch import Tensor

from innerloop.algorithms.base import S
from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem


class RegressionConstruction(Construction[RegressionProblem, S], ABC, Generic[S]):
    """A construction that reads n examples and predicts at the query tokens, which come last."""

    one_query: ClassVar[bool] = False
    """Whether problems must have exactly one query."""

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "context examples of the certified problems", least=1, most=10_000)
    kappa: float = parameter(1.0, "condition number of the certified problems", least=1)
    covariance: Tensor | None = parameter(None, "Σ of the certified problems, d×d")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.distributions()  # raises for an invalid covariance or condition number

    def distributions(self) -> list[LinearRegression]:
        """Return noisy problems of two sizes with several queries.

        A wrong construction is unlikely to pass on them by chance.
        """
        law = {"d": self.d, "noise": 0.5, "kappa": self.kappa, "covariance": self.covariance}
        sizes = ((self.n, 2), (self.n // 2 + 1, 3))
        return [
            LinearRegression(**law, n=n, queries=1 if self.one_query else queries)
            for n, queries in sizes
        ]

    def accept(self, problem: RegressionProblem) -> None:
        if problem.d != self.d:
            raise OutOfRangeError(f"{self.name} was built for d={self.d}, got d={problem.d}")
        if self.one_query and problem.queries != 1:
            raise OutOfRangeError(
                f"{self.name} expects problems with one query, got {problem.queries}"
            )

    def context_length(self, problem: RegressionProblem) -> int:
        return problem.n

    def read_queries(self, problem: RegressionProblem, stream: Tensor, register: str) -> Tensor:
        """Return a scalar register of the query tokens."""
        return self.layout.read(stream, register)[..., problem.n :]
