"""The exact least-squares weights, of least norm where many fit (LAPACK's gelsd). No steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from innerloop.algorithms.regression import ExactModel, Weights
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class LeastSquares(ExactModel):
    """Equal to numpy.linalg.lstsq, batched."""

    source: ClassVar[str] = "numpy.linalg.lstsq solves the same problem"

    def init(self, problem: RegressionProblem) -> Weights:
        # gelsd, the driver that takes rank-deficient rows, exists on the CPU only.
        x, y = problem.x.cpu(), problem.y.cpu().unsqueeze(-1)
        return torch.linalg.lstsq(x, y, driver="gelsd").solution.squeeze(-1).to(problem.x.device)
