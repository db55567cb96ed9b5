"""The exact ridge weights, (XᵀX + λI)⁻¹ Xᵀy, by a Cholesky solve (one state, no steps)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.regression import (
    ExactModel,
    Weights,
    check_penalty,
    largest_curvature,
    to_scalar_tensor,
)
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class Ridge(ExactModel):
    """Exact ridge regression, batched; it equals scikit-learn's Ridge without an intercept."""

    source: ClassVar[str] = "sklearn.linear_model.Ridge solves the same problem"
    special_case_of: ClassVar[tuple[str, ...]] = ("gaussian-prior",)
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Ridge]:
        top = problem.n * largest_curvature(problem)
        return [cls(to_scalar_tensor(10.0**power * top)) for power in range(-5, 2)]

    def __post_init__(self) -> None:
        check_penalty(self.penalty)

    def init(self, problem: RegressionProblem) -> Weights:
        identity = torch.eye(problem.d).to(problem.x)
        gram = problem.x.mT @ problem.x + self.penalty.to(problem.x)[..., None, None] * identity
        moment = problem.x.mT @ problem.y.unsqueeze(-1)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if bool(failed.any()):
            least = float(self.penalty.detach().min())
            raise InputError(
                f"expected a penalty that makes XᵀX + λI positive definite, got {least}: enlarge it"
            )
        return torch.cholesky_solve(moment, factor).squeeze(-1)
