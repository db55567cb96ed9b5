"""The power method with deflation: iterate v ← Av/‖Av‖, then A ← A − ‖Av‖ v vᵀ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.problems.principal_components import PCAProblem

Square = Float[Tensor, "*batch d d"]
Vector = Float[Tensor, "*batch d"]

MAX_GUESS = 64
"""The largest number of iterations that a fit tries."""


class DeflationState(NamedTuple):
    """The matrix without the components computed so far, and the vectors of all components."""

    matrix: Square
    vectors: Float[Tensor, "*batch components d"]


@dataclass(frozen=True, eq=False)
class PowerMethod(Algorithm[PCAProblem, DeflationState]):
    """The power method with deflation; a step is one iteration.

    Each component gets the same number of iterations, and the last of them deflates A.
    """

    source: ClassVar[str] = "Q. Liu 2025, Algorithm 1"
    problem_type: ClassVar = PCAProblem
    iterations: int
    """The number of iterations of all components together."""

    @classmethod
    def guesses(cls, problem: PCAProblem) -> list[PowerMethod]:
        return [cls(count) for count in range(problem.components, MAX_GUESS + 1)]

    def count_steps(self, problem: PCAProblem) -> int:
        return self.iterations

    def init(self, problem: PCAProblem) -> DeflationState:
        return DeflationState(problem.covariance, problem.start)

    def step(self, problem: PCAProblem, state: DeflationState, k: int) -> DeflationState:
        turn, last = self.component_at(problem.components, k)
        matrix, vectors = state.matrix, state.vectors.clone()
        vector = normalise(product(matrix, vectors[..., turn, :]))
        vectors[..., turn, :] = vector
        if last:
            value = product(matrix, vector).norm(dim=-1)[..., None, None]
            matrix = matrix - value * vector.unsqueeze(-1) * vector.unsqueeze(-2)
        return DeflationState(matrix, vectors)

    def predict(
        self, problem: PCAProblem, state: DeflationState
    ) -> Float[Tensor, "*batch components d"]:
        return state.vectors

    def component_at(self, components: int, k: int) -> tuple[int, bool]:
        """Return the component that step k iterates, and whether that is its last iteration."""
        now, then = (j * components // self.iterations for j in (k, k + 1))
        return now, now != then

    def lengths(self, problem: PCAProblem) -> Iterator[Float[Tensor, "*batch"]]:
        """Yield every ‖Av‖ that occurs in iterations and deflations."""
        states = list(self.states(problem, self.iterations))
        for k, (state, after) in enumerate(pairwise(states)):
            turn, last = self.component_at(problem.components, k)
            for vectors in (state.vectors, after.vectors) if last else (state.vectors,):
                yield product(state.matrix, vectors[..., turn, :]).norm(dim=-1)


def normalise(vector: Vector) -> Vector:
    """Return v/‖v‖."""
    return vector / vector.norm(dim=-1, keepdim=True)


def product(matrix: Float[Tensor, "*batch m d"], vector: Vector) -> Float[Tensor, "*batch m"]:
    """Return Av for every instance."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
