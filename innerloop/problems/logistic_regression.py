"""In-context logistic regression: n examples (x, y) with labels 1 or 0, and queries x to label.

A label is 1 with probability s(⟨w, x⟩ + noise), s(z) = 1/(1 + e^{−z}). Rows and weights are drawn
as in linear regression; `targets` are the log-odds ⟨w, x⟩ of the queries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from innerloop.problems.linear_regression import LinearRegression, RegressionProblem


class LogisticRegression(LinearRegression):
    """A distribution over `RegressionProblem`s whose labels are 0 or 1."""

    source: ClassVar[str] = "Cox 1958, The regression analysis of binary sequences"

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> RegressionProblem:
        """Draw a batch of instances, in float64 so that every precision sees the same data."""
        problem = super().sample(*batch, generator=generator)
        luck = torch.rand(problem.y.shape, generator=generator, dtype=torch.float64)
        return replace(problem, y=(luck < problem.y.sigmoid()).double()).to(dtype)
