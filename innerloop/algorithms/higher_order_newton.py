"""Newton–Schulz iteration of a higher order p: M ← M (I + R + … + R^(p−1)), R = I − S M.

S = XᵀX; the iteration starts from M = αS and predicts with ŵ = M Xᵀy. R becomes R^p at every step;
p = 2 is Newton's iteration. `identify` tries the orders 3 and 5, because one step of order 4 equals
two steps of order 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from innerloop.algorithms.newton import Inverse, Newton
from innerloop.algorithms.regression import largest_curvature, to_scalar_tensor
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class HigherOrderNewton(Newton):
    """The Newton–Schulz iteration of order p ≥ 2, with the state M."""

    source: ClassVar[str] = "Altman 1960, An optimum cubically convergent iterative method"
    special_case_of: ClassVar[tuple[str, ...]] = ()
    order: int = 3

    def __post_init__(self) -> None:
        if self.order < 2:
            raise InputError(f"order must be at least 2, got {self.order}")

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Any]:
        top = problem.n * largest_curvature(problem)
        return [
            cls(to_scalar_tensor(2.0**power / top**2), order)
            for order in (3, 5)
            for power in range(-12, 1, 3)
        ]

    def step(self, problem: RegressionProblem, state: Inverse, k: int) -> Inverse:
        identity = torch.eye(problem.d).to(problem.x)
        left = identity - problem.x.mT @ problem.x @ state
        series = identity
        for _ in range(self.order - 1):
            series = identity + left @ series
        return state @ series
