"""Projected gradient descent on one of three losses of a linear model, in a box.

    w ← Proj( w − (η/n) Σᵢ ℓ'(⟨w, xᵢ⟩, yᵢ) xᵢ ),   |w| ≤ C on every entry

ℓ' = u − y (squared loss), the same clipped to ±1 (Huber's loss), or 1/(1 + e^{−u}) − y (logistic
loss, for labels 0 and 1 or their probabilities).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.regression import (
    LinearModel,
    Weights,
    largest_curvature,
    to_scalar_tensor,
)
from innerloop.problems.linear_regression import RegressionProblem

RiskName = Literal["squared", "logistic", "huber"]
HUBER_THRESHOLD = 1.0
WIDE = 1e6
"""A bound of the box that no iterate reaches."""


@dataclass(frozen=True, eq=False)
class ProjectedGradientDescent(LinearModel):
    """Projected gradient descent on `loss`, with η = `step_sizes[k]` at step k and C = `box`."""

    source: ClassVar[str] = "Yang 2025, second paper, Theorem 6 (Wu et al. 2024)"
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    box: Float[Tensor, ""]
    loss: RiskName = "logistic"

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[ProjectedGradientDescent]:
        """Return starts for the logistic loss; the other losses are algorithms of their own."""
        top = largest_curvature(problem)
        sizes = (torch.tensor([size / top], dtype=torch.float64) for size in (0.2, 1.0, 4.0))
        return [cls(size, to_scalar_tensor(WIDE), "logistic") for size in sizes]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = select_entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        box = self.box.to(problem.x)
        predictions = (problem.x @ state.unsqueeze(-1)).squeeze(-1)
        slope = differentiate_loss(self.loss, predictions, problem.y)
        moved = state - size * (problem.x.mT @ slope.unsqueeze(-1)).squeeze(-1) / problem.n
        return torch.maximum(torch.minimum(moved, box), -box)


def differentiate_loss(
    loss: RiskName, predictions: Float[Tensor, "*batch n"], labels: Float[Tensor, "*batch n"]
) -> Float[Tensor, "*batch n"]:
    """Return ℓ'(u, y), the derivative of the loss by the prediction u."""
    if loss == "logistic":
        return predictions.sigmoid() - labels
    residual = predictions - labels
    return residual if loss == "squared" else residual.clamp(-HUBER_THRESHOLD, HUBER_THRESHOLD)
