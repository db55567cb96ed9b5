"""The average ŵ = (1/n) Σᵢ yᵢ xᵢ, a gradient step of size 1 (one state, no steps)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from innerloop.algorithms.regression import ExactModel, Weights, gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class Averaging(ExactModel):
    """The average of y x, a consistent estimate of the weights if the rows have covariance I."""

    source: ClassVar[str] = "Garg et al. 2022, a baseline of in-context linear regression"
    special_case_of: ClassVar[tuple[str, ...]] = ("gradient-descent",)

    def init(self, problem: RegressionProblem) -> Weights:
        """Return the solution (1/n) Σ yᵢ xᵢ, which steps do not change."""
        return -gradient(problem, super().init(problem))
