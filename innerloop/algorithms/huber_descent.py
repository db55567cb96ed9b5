"""Gradient descent on Huber's loss, which clips residuals at a threshold δ.

w ← w − (η/n) Σᵢ min(max(⟨w, xᵢ⟩ − yᵢ, −δ), δ) xᵢ
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

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


@dataclass(frozen=True, eq=False)
class HuberDescent(LinearModel):
    """Gradient descent on Huber's loss with η = `step_sizes[k]` at step k and δ = `threshold`."""

    source: ClassVar[str] = "Huber 1964, Robust estimation of a location parameter"
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    threshold: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[HuberDescent]:
        top, label = largest_curvature(problem), float(problem.y.square().mean().sqrt())
        return [
            cls(torch.tensor([size / top], dtype=torch.float64), to_scalar_tensor(share * label))
            for size in (0.05, 0.2, 0.5, 1.0)
            for share in (0.2, 0.8)
        ]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = select_entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        residual = (problem.x @ state.unsqueeze(-1)).squeeze(-1) - problem.y
        most = self.threshold.to(problem.x).unsqueeze(-1)
        clipped = torch.maximum(torch.minimum(residual, most), -most)
        return state - size * (problem.x.mT @ clipped.unsqueeze(-1)).squeeze(-1) / problem.n
