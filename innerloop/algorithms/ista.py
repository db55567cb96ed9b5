"""ISTA for the lasso ½‖y − Xβ‖² + α‖β‖₁: a gradient step by 1/L, then a soft threshold at α/L."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.regression import (
    LinearModel,
    Weights,
    correlation,
    gradient,
    to_scalar_tensor,
)
from innerloop.problems.linear_regression import RegressionProblem


def soft_threshold(values: Tensor, threshold: Tensor) -> Tensor:
    """Apply sign(x)·max(|x| − θ, 0) to every entry."""
    return values.sign() * (values.abs() - threshold).clamp_min(0.0)


_lipschitz_cache: WeakKeyDictionary[RegressionProblem, Tensor] = WeakKeyDictionary()


def lipschitz_constant(problem: RegressionProblem) -> Float[Tensor, "*batch 1"]:
    """Return L = λmax(XᵀX) of every instance, which is computed once per problem."""
    if problem.x.requires_grad:
        return _largest_eigenvalue(problem)
    if problem not in _lipschitz_cache:
        _lipschitz_cache[problem] = _largest_eigenvalue(problem)
    return _lipschitz_cache[problem]


def _largest_eigenvalue(problem: RegressionProblem) -> Float[Tensor, "*batch 1"]:
    """Return λmax(XᵀX), computed from the smaller of XᵀX and XXᵀ."""
    x = problem.x
    gram = x @ x.mT if problem.n < problem.d else x.mT @ x
    return torch.linalg.eigvalsh(gram)[..., -1:]


def proximal_step(problem: RegressionProblem, weights: Weights, penalty: Tensor) -> Weights:
    """Take one gradient step on ½‖y − Xβ‖², then apply the soft threshold."""
    size = lipschitz_constant(problem)
    moved = weights - problem.n * gradient(problem, weights) / size
    return soft_threshold(moved, penalty.to(problem.x).unsqueeze(-1) / size)


def candidate_penalties(problem: RegressionProblem) -> list[float]:
    """Return penalties from which a fit starts: 0.001 to 0.3 of that with all weights 0."""
    return [share * correlation(problem) for share in (0.001, 0.01, 0.1, 0.3)]


@dataclass(frozen=True, eq=False)
class ISTA(LinearModel):
    """ISTA from β = 0, with L the largest eigenvalue of XᵀX."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 4.2"
    penalty: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[ISTA]:
        return [cls(to_scalar_tensor(penalty)) for penalty in candidate_penalties(problem)]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return proximal_step(problem, state, self.penalty)
