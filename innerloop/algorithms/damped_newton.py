"""Damped Newton–Schulz iteration for the pseudo-inverse of S = XᵀX, M ← M + δ (M − M S M).

The iteration starts from M = αS and predicts with ŵ = M Xᵀy. With δ = 1 it is Newton's iteration; a
smaller δ shortens every step. With one δ per step it is Pan and Schreiber's scaled iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter, select_entry
from innerloop.algorithms.newton import Inverse, Newton
from innerloop.algorithms.regression import largest_curvature, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class DampedNewton(Newton):
    """The damped Newton iteration with the state M; step k uses δ = `dampings[k]`."""

    source: ClassVar[str] = "Pan and Schreiber 1991, An improved Newton iteration, section 2"
    special_case_of: ClassVar[tuple[str, ...]] = ()
    dampings: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Any]:
        top = problem.n * largest_curvature(problem)
        return [
            cls(to_scalar_tensor(2.0**power / top**2), torch.tensor([d], dtype=torch.float64))
            for power in range(-11, 1, 2)
            for d in (0.4, 0.8)
        ]

    def step(self, problem: RegressionProblem, state: Inverse, k: int) -> Inverse:
        gram = problem.x.mT @ problem.x
        damping = select_entry(self.dampings, k, problem.x)[..., None, None]
        return state + damping * (state - state @ gram @ state)
