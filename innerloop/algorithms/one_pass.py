"""Base class of iterations that use one example after another, in the prompt's order.

    w ← w + s_i (y_i − ⟨w, x_i⟩) x_i        for i = 1, 2, …, n

By default a step is a whole pass. The residual e_i of each example, at the time of its update,
solves a triangular system, (I + L S) e = y − X w with L the part of XXᵀ below the diagonal and
S = diag(s). A pass is therefore w ← w + XᵀS e, without a loop. Alternatively a step is one example;
after the last example the next pass begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.regression import LinearModel, Weights
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class OnePass(LinearModel, ABC):
    """An iteration from w = 0 that updates on one example after another; their order matters."""

    takes_passes: bool = field(default=True, kw_only=True)
    """Whether a step is a pass over all examples; otherwise it is one example."""

    @abstractmethod
    def scale_examples(self, problem: RegressionProblem) -> Float[Tensor, "*batch n"]:
        """Return s_1 … s_n."""

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        scales = self.scale_examples(problem)
        errors = problem.y - (problem.x @ state.unsqueeze(-1)).squeeze(-1)
        if self.takes_passes:
            lower = (problem.x @ problem.x.mT).tril(-1) * scales.unsqueeze(-2)
            system = lower + torch.eye(problem.n).to(problem.x)
            errors = torch.linalg.solve_triangular(
                system, errors.unsqueeze(-1), upper=False, unitriangular=True
            ).squeeze(-1)
        else:
            errors = errors * (torch.arange(problem.n).to(problem.x.device) == k % problem.n)
        return state + (problem.x.mT @ (scales * errors).unsqueeze(-1)).squeeze(-1)
