"""Spectral clustering with soft labels: centre, iterate v ← Cv/‖Cv‖, label tanh β⟨x, v⟩.

(1 + label)/2 is the probability that a point belongs to the first of two clouds with equal weights
and covariances. With means ±μ and variance σ² its log odds are 2⟨x, μ⟩/σ², and β is ‖μ‖/σ².
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.power_method import Vector, normalise, product
from innerloop.algorithms.regression import to_scalar_tensor
from innerloop.errors import InputError
from innerloop.problems.principal_components import PCAProblem


@dataclass(frozen=True, eq=False)
class SoftSpectralClustering(Algorithm[PCAProblem, Vector]):
    """Spectral clustering with soft labels: the state is the direction v, and β = `stiffness`."""

    source: ClassVar[str] = "Yang 2025 (Learning spectral methods by transformers)"
    problem_type: ClassVar = PCAProblem
    stiffness: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    def __post_init__(self) -> None:
        if not bool((self.stiffness > 0).all()):
            raise InputError(f"stiffness must be positive, got {self.stiffness.tolist()}")

    @classmethod
    def guesses(cls, problem: PCAProblem) -> list[SoftSpectralClustering]:
        centred = centre_points(problem)
        spread = float(centred.square().mean().sqrt().clamp_min(1e-6))
        return [cls(to_scalar_tensor(share / spread)) for share in (0.3, 1.0, 3.0, 10.0)]

    def init(self, problem: PCAProblem) -> Vector:
        return problem.start[..., 0, :]

    def step(self, problem: PCAProblem, state: Vector, k: int) -> Vector:
        centred = centre_points(problem)
        return normalise(product(centred.mT, product(centred, state)))

    def predict(self, problem: PCAProblem, state: Vector) -> Float[Tensor, "*batch n 1"]:
        scores = product(centre_points(problem), state)
        return (self.stiffness.to(scores).unsqueeze(-1) * scores).tanh().unsqueeze(-1)


def centre_points(problem: PCAProblem) -> Float[Tensor, "*batch n d"]:
    """Return the points minus their mean."""
    return problem.x - problem.x.mean(dim=-2, keepdim=True)
