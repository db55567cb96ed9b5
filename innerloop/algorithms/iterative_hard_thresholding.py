"""Iterative hard thresholding: take a gradient step on least squares, keep the s largest weights.

w ← H_s(w − η ∇R(w)), with H_s(v) = v on the s entries of the largest size, 0 elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.regression import LinearModel, Weights, gradient, largest_curvature
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class IterativeHardThresholding(LinearModel):
    """Iterative hard thresholding with η = `step_sizes[k]` at step k and s = `sparsity`.

    A sparsity above d keeps all weights.
    """

    source: ClassVar[str] = "Blumensath and Davies 2009, Iterative hard thresholding, eq. (10)"
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    sparsity: int = 1

    def __post_init__(self) -> None:
        if self.sparsity < 1:
            raise InputError(f"sparsity must be at least 1, got {self.sparsity}")

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[IterativeHardThresholding]:
        top = largest_curvature(problem)
        return [
            cls(torch.tensor([size / top], dtype=torch.float64), sparsity)
            for sparsity in (1, 2, 3, 5, 8)
            if sparsity < problem.d or sparsity == 1
            for size in (0.2, 0.5, 1.0)
        ]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = select_entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        moved = state - size * gradient(problem, state)
        largest = moved.abs().topk(min(self.sparsity, problem.d), dim=-1).indices
        return moved * torch.zeros_like(moved).scatter(-1, largest, 1.0)
