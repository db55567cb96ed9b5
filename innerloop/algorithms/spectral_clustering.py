"""Spectral clustering of two clouds: centre, iterate v ← Cv/‖Cv‖, score ⟨x, v⟩, label by its sign.

C is the covariance of the centred points. A label is score/ramp, clipped to [−1, 1]. It is the sign
of the score, except for scores between −ramp and ramp.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.power_method import Square, Vector, normalise, product
from innerloop.problems.principal_components import PCAProblem


@dataclass(frozen=True, eq=False)
class SpectralClustering(Algorithm[PCAProblem, Vector]):
    """Spectral clustering: the state is v, the prediction a score and a label for each point."""

    source: ClassVar[str] = "Yang 2025 (Learning spectral methods by transformers)"
    problem_type: ClassVar = PCAProblem
    ramp: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: PCAProblem) -> list[SpectralClustering]:
        centred = problem.x - problem.x.mean(dim=-2, keepdim=True)
        spread = centred.square().mean().sqrt().double().cpu().clamp_min(1e-6)
        return [cls(share * spread) for share in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)]

    def init(self, problem: PCAProblem) -> Vector:
        return problem.start[..., 0, :]

    def step(self, problem: PCAProblem, state: Vector, k: int) -> Vector:
        return normalise(product(self.covariance(problem), state))

    def predict(self, problem: PCAProblem, state: Vector) -> Float[Tensor, "*batch n 2"]:
        scores = product(self.centre(problem), state)
        return torch.stack(
            [scores, (scores / self.ramp.to(scores).unsqueeze(-1)).clamp(-1, 1)], dim=-1
        )

    def covariance(self, problem: PCAProblem) -> Square:
        """Return C, the covariance of the centred points."""
        return replace(problem, x=self.centre(problem)).covariance

    def centre(self, problem: PCAProblem) -> Float[Tensor, "*batch n d"]:
        """Return the points minus their mean."""
        return problem.x - problem.x.mean(dim=-2, keepdim=True)
