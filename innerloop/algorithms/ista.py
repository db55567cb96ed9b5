"""ISTA for the lasso ½‖y − Xβ‖² + α‖β‖₁: a gradient step by 1/L, then a soft threshold at α/L."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.regression import (
    LinearModel,
    Weights,
    correlation,
    gradient,
    number,
)
from innerloop.problems.linear_regression import RegressionProblem


def soft_threshold(values: Tensor, threshold: Tensor) -> Tensor:
    """sign(x)·max(|x| − θ, 0) on every entry."""
    return values.sign() * (values.abs() - threshold).clamp_min(0.0)


_found: WeakKeyDictionary[RegressionProblem, Tensor] = WeakKeyDictionary()


def lipschitz(problem: RegressionProblem) -> Float[Tensor, "*batch 1"]:
    """L = λmax(XᵀX) of every instance; every step asks, so it is computed once for a problem."""
    if problem.x.requires_grad:
        return _largest(problem)
    if problem not in _found:
        _found[problem] = _largest(problem)
    return _found[problem]


def _largest(problem: RegressionProblem) -> Float[Tensor, "*batch 1"]:
    """By the smaller of the two Gram matrices."""
    x = problem.x
    gram = x @ x.mT if problem.n < problem.d else x.mT @ x
    return torch.linalg.eigvalsh(gram)[..., -1:]


def proximal_step(problem: RegressionProblem, weights: Weights, penalty: Tensor) -> Weights:
    """One gradient step on ½‖y − Xβ‖², one soft threshold."""
    size = lipschitz(problem)
    moved = weights - problem.n * gradient(problem, weights) / size
    return soft_threshold(moved, penalty.to(problem.x).unsqueeze(-1) / size)


def penalties(problem: RegressionProblem) -> list[float]:
    """Penalties worth a try: from nearly least squares to nearly nothing left."""
    return [share * correlation(problem) for share in (0.001, 0.01, 0.1, 0.3)]


@dataclass(frozen=True, eq=False)
class ISTA(LinearModel):
    """From β = 0; L is the largest eigenvalue of XᵀX."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 4.2"
    penalty: Float[Tensor, "*batch"]

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[ISTA]:
        return [cls(number(penalty)) for penalty in penalties(problem)]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return proximal_step(problem, state, self.penalty)
