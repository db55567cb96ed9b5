"""Gradient descent with momentum on least squares: v ← βv − η∇R(w), w ← w + v."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from innerloop import Algorithm, RegressionProblem, hyperparameter


class Motion(NamedTuple):
    """The weights w, and the change v of the last step."""

    weights: Tensor
    velocity: Tensor


@dataclass(frozen=True, eq=False)
class HeavyBall(Algorithm[RegressionProblem, Motion]):
    """The algorithm with a step size η and a momentum β that are the same in every step."""

    source: ClassVar[str] = "Polyak 1964"
    problem_type: ClassVar = RegressionProblem
    step_size: Tensor = field(metadata=hyperparameter())
    momentum: Tensor = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[HeavyBall]:
        curvature = torch.linalg.eigvalsh(problem.x.mT @ problem.x / problem.n)[..., -1].mean()
        sizes, momenta = torch.tensor([0.25, 0.5, 1.0]), torch.tensor([0.3, 0.6]).double()
        return [cls(size / curvature, momentum) for size in sizes for momentum in momenta]

    def init(self, problem: RegressionProblem) -> Motion:
        zeros = problem.x.new_zeros(*problem.batch, problem.d)
        return Motion(zeros, zeros)

    def step(self, problem: RegressionProblem, state: Motion, k: int) -> Motion:
        residual = (problem.x @ state.weights.unsqueeze(-1)).squeeze(-1) - problem.y
        gradient = (problem.x.mT @ residual.unsqueeze(-1)).squeeze(-1) / problem.n
        momentum, size = (
            number.to(problem.x).unsqueeze(-1) for number in (self.momentum, self.step_size)
        )
        velocity = momentum * state.velocity - size * gradient
        return Motion(state.weights + velocity, velocity)

    def predict(self, problem: RegressionProblem, state: Motion) -> Tensor:
        return (problem.x_query @ state.weights.unsqueeze(-1)).squeeze(-1)
