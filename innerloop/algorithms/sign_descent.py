"""Sign descent on least squares, w ← w − η sign(∇R(w)): every weight moves by the same amount."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.regression import LinearModel, Weights, gradient
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class SignDescent(LinearModel):
    """Sign descent with η = `step_sizes[k]` at step k; fewer sizes than steps are repeated."""

    source: ClassVar[str] = "Bernstein et al. 2018, signSGD, with the gradient of all examples"
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[SignDescent]:
        """Return starts with step sizes from 2^−7 to 1 times the expected size of a weight."""
        label = float(problem.y.square().mean().sqrt())
        entry = label / float(problem.x.square().sum(dim=-1).mean().sqrt())
        sizes = [2.0 ** (power / 2) * entry for power in range(-14, 1)]
        return [cls(torch.tensor([size], dtype=torch.float64)) for size in sizes]

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = select_entry(self.step_sizes, k, problem.x).unsqueeze(-1)
        return state - size * gradient(problem, state).sign()
