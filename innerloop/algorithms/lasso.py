"""The exact lasso weights, argmin ½‖y − Xβ‖² + α‖β‖₁, by coordinate descent (one state, no steps).

Coordinate descent determines the support S and the signs s. The weights on the support then solve
X_SᵀX_S β = X_Sᵀy − α s, which is exact and differentiable in α. If the descent ends before the
signs are right (many features, few examples, a tiny α), its own weights are the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.ista import candidate_penalties, soft_threshold
from innerloop.algorithms.regression import ExactModel, Weights, check_penalty, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem

MAX_SWEEPS, CONVERGENCE_SHARE = 500, 1e-7
"""The descent ends after `MAX_SWEEPS` sweeps, or when changes are small.

Changes are small if no weight changes by more than `CONVERGENCE_SHARE` times the largest weight.
"""


@dataclass(frozen=True, eq=False)
class Lasso(ExactModel):
    """The exact lasso, batched; equals scikit-learn's Lasso without intercept for alpha = α/n."""

    source: ClassVar[str] = "sklearn.linear_model.Lasso solves the same problem"
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    def __post_init__(self) -> None:
        check_penalty(self.penalty)

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Lasso]:
        return [cls(to_scalar_tensor(penalty)) for penalty in candidate_penalties(problem)]

    def init(self, problem: RegressionProblem) -> Weights:
        gram = problem.x.mT @ problem.x
        moment = (problem.x.mT @ problem.y.unsqueeze(-1)).squeeze(-1)
        penalty = self.penalty.to(problem.x).unsqueeze(-1)
        with torch.no_grad():
            near = self._descend(gram, moment, penalty)
        signs = near.sign()
        inside = signs.abs()
        system = gram * inside.unsqueeze(-1) * inside.unsqueeze(-2) + torch.diag_embed(1 - inside)
        solved, failed = torch.linalg.solve_ex(system, inside * moment - penalty * signs)
        # If a sign changes, the signs after the descent were wrong: use its weights.
        right = (failed == 0) & (solved.sign() == signs).all(dim=-1)
        return torch.where(right.unsqueeze(-1), solved, near)

    def _descend(
        self,
        gram: Float[Tensor, "*batch d d"],
        moment: Weights,
        penalty: Float[Tensor, "*#batch 1"],
    ) -> Weights:
        weights = torch.zeros_like(moment)
        diagonal = gram.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(gram.dtype).tiny)
        for _ in range(MAX_SWEEPS):
            before = weights.clone()
            for j in range(gram.shape[-1]):
                own, others = diagonal[..., j : j + 1], gram[..., j, :]
                pull = (moment[..., j] - (others * weights).sum(dim=-1)).unsqueeze(-1)
                shrunk = soft_threshold(pull + own * weights[..., j : j + 1], penalty) / own
                weights[..., j : j + 1] = shrunk
            if float((weights - before).abs().max()) <= CONVERGENCE_SHARE * float(
                weights.abs().max()
            ):
                break
        return weights
