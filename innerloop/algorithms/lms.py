"""LMS, the rule of Widrow and Hoff: a gradient step on one example after another, in their order.

w ← w + η (y_i − ⟨w, x_i⟩) x_i. A step is either one pass over the prompt or one example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.one_pass import OnePass
from innerloop.algorithms.regression import largest_curvature, to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class LMS(OnePass):
    """The LMS rule with one step size η for all examples."""

    source: ClassVar[str] = "Widrow and Hoff 1960, Adaptive switching circuits"
    step_size: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[LMS]:
        row = float(problem.x.square().sum(dim=-1).mean())
        most = min(1 / row, 4 / (problem.n * largest_curvature(problem)))
        return [
            cls(to_scalar_tensor(share * top), takes_passes=passes)
            for top, passes in ((most, True), (1 / row, False))
            for share in (0.05, 0.2, 0.5, 1.0)
        ]

    def scale_examples(self, problem: RegressionProblem) -> Float[Tensor, "*batch n"]:
        return self.step_size.to(problem.x).unsqueeze(-1).expand(problem.y.shape)
