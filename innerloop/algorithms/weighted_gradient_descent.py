"""Gradient descent on part of the examples, or with a weight a_i for each place in the prompt.

    w ← w − (1/n) Σᵢ a_i (⟨w, xᵢ⟩ − yᵢ) xᵢ

An example with weight 0 is left out. This covers gradient descent on the first examples only, on
every other one, or on a mini-batch for each step. Equal weights give gradient descent on all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.gradient_descent import candidate_step_sizes
from innerloop.algorithms.regression import LinearModel, Weights
from innerloop.errors import InputError
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class WeightedGradientDescent(LinearModel):
    """Gradient descent with the weights a = `example_weights[k]` at step k.

    A prompt with fewer examples uses the first of these weights.
    """

    source: ClassVar[str] = "weighted least squares (Aitken 1936), by gradient descent"
    example_weights: Float[Tensor, "steps *batch n"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[WeightedGradientDescent]:
        ones = torch.ones(1, problem.n, dtype=torch.float64)
        return [cls(size * ones) for size in candidate_step_sizes(problem)]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        weights = select_entry(self.example_weights, k, problem.x)
        if weights.shape[-1] < problem.n:
            raise InputError(
                f"expected at most {weights.shape[-1]} examples, one per weight, got {problem.n}"
            )
        residual = (problem.x @ state.unsqueeze(-1)).squeeze(-1) - problem.y
        pull = problem.x.mT @ (weights[..., : problem.n] * residual).unsqueeze(-1)
        return state - pull.squeeze(-1) / problem.n
