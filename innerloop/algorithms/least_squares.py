"""The least-squares weights, with least norm if they are not unique (one state, no steps)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from innerloop.algorithms.regression import ExactModel, Weights
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class LeastSquares(ExactModel):
    """Exact least squares by LAPACK's gelsd, batched; it equals numpy.linalg.lstsq."""

    source: ClassVar[str] = "numpy.linalg.lstsq solves the same problem"

    def init(self, problem: RegressionProblem) -> Weights:
        # Only the CPU has gelsd, the LAPACK driver that handles rank-deficient matrices.
        x, y = problem.x.cpu(), problem.y.cpu().unsqueeze(-1)
        return torch.linalg.lstsq(x, y, driver="gelsd").solution.squeeze(-1).to(problem.x.device)
