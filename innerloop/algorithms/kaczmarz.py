"""Kaczmarz: project the weights on ⟨w, x_i⟩ = y_i for one example after another, in their order.

w ← w + ω (y_i − ⟨w, x_i⟩) x_i/‖x_i‖², with ω = 1 for a full projection. A step is either one pass
over the prompt or one example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.one_pass import OnePass
from innerloop.algorithms.regression import to_scalar_tensor
from innerloop.problems.linear_regression import RegressionProblem


@dataclass(frozen=True, eq=False)
class Kaczmarz(OnePass):
    """Kaczmarz's method with ω = `relaxation` for all examples; those with x = 0 have no effect."""

    source: ClassVar[str] = "Kaczmarz 1937; with relaxation Herman 1980"
    relaxation: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Kaczmarz]:
        shares = (0.25, 0.6, 1.0, 1.4)
        return [
            cls(to_scalar_tensor(share), takes_passes=passes)
            for passes in (True, False)
            for share in shares
        ]

    def scale_examples(self, problem: RegressionProblem) -> Float[Tensor, "*batch n"]:
        power = problem.x.square().sum(dim=-1)
        shares = torch.where(power > 0, 1 / torch.where(power > 0, power, 1.0), 0.0)
        return self.relaxation.to(problem.x).unsqueeze(-1) * shares
