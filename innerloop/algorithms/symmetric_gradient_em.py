"""EM for the mixture of the regressions β and −β, whose M step is T gradient steps.

    E   τ_i = tanh(y_i ⟨x_i, β⟩ / ϑ²), the posterior mean of the sign
    M   β ← β + α (1/n) Σ_i (τ_i y_i − ⟨x_i, β⟩) x_i        T times, τ fixed

The answer is β, which the data determine up to its sign. It is not a prediction, because that of
the oracle, the mean of ⟨x, β⟩ and −⟨x, β⟩, would be 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.gradient_em import candidate_settings
from innerloop.algorithms.power_method import product
from innerloop.algorithms.regression import Weights
from innerloop.problems.mixture_of_regressions import MixtureProblem


@dataclass(frozen=True, eq=False)
class SymmetricGradientEM(Algorithm[MixtureProblem, Weights]):
    """EM for ±β with gradient steps; the state is β, from the problem's first start vector.

    ϑ is known, α = `step_size`, and T = `inner`.
    """

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024), K = 2"
    problem_type: ClassVar = MixtureProblem
    noise: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    step_size: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    inner: int

    @classmethod
    def guesses(cls, problem: MixtureProblem) -> list[SymmetricGradientEM]:
        return [cls(*rest) for rest in candidate_settings(problem)]

    def init(self, problem: MixtureProblem) -> Weights:
        return problem.start[..., 0, :]

    def step(self, problem: MixtureProblem, state: Weights, k: int) -> Weights:
        x, y = problem.x, problem.y
        signs = torch.tanh(y * product(x, state) / self.noise.to(x).unsqueeze(-1) ** 2)
        for _ in range(self.inner):
            pull = x.mT @ (signs * y - product(x, state)).unsqueeze(-1) / problem.n
            state = state + self.step_size.to(x).unsqueeze(-1) * pull.squeeze(-1)
        return state

    def predict(self, problem: MixtureProblem, state: Weights) -> Weights:
        return state
