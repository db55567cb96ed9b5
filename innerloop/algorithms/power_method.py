"""The power method with deflation: v ← Av/‖Av‖ again and again, then A ← A − ‖Av‖ v vᵀ."""

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


class Deflated(NamedTuple):
    """The matrix with the found components taken out, and all vectors, found or not."""

    matrix: Square
    vectors: Float[Tensor, "*batch components d"]


@dataclass(frozen=True, eq=False)
class PowerMethod(Algorithm[PCAProblem, Deflated]):
    """A step is an iteration, shared out evenly; a component's last one takes it out of A."""

    source: ClassVar[str] = "Q. Liu 2025, Algorithm 1"
    iterations: int
    """Iterations of all components together."""

    def init(self, problem: PCAProblem) -> Deflated:
        return Deflated(problem.covariance, problem.start)

    def step(self, problem: PCAProblem, state: Deflated, k: int) -> Deflated:
        turn, last = self.turn(problem.components, k)
        matrix, vectors = state.matrix, state.vectors.clone()
        vector = normalised(product(matrix, vectors[..., turn, :]))
        vectors[..., turn, :] = vector
        if last:
            value = product(matrix, vector).norm(dim=-1)[..., None, None]
            matrix = matrix - value * vector.unsqueeze(-1) * vector.unsqueeze(-2)
        return Deflated(matrix, vectors)

    def predict(self, problem: PCAProblem, state: Deflated) -> Float[Tensor, "*batch components d"]:
        return state.vectors

    def turn(self, components: int, k: int) -> tuple[int, bool]:
        """Whose iteration step k is, and whether it is that component's last."""
        now, then = (j * components // self.iterations for j in (k, k + 1))
        return now, now != then

    def lengths(self, problem: PCAProblem) -> Iterator[Float[Tensor, "*batch"]]:
        """Every ‖Av‖ that the iterations and the deflations meet."""
        states = list(self.states(problem, self.iterations))
        for k, (state, after) in enumerate(pairwise(states)):
            turn, last = self.turn(problem.components, k)
            for vectors in (state.vectors, after.vectors) if last else (state.vectors,):
                yield product(state.matrix, vectors[..., turn, :]).norm(dim=-1)


def normalised(vector: Vector) -> Vector:
    return vector / vector.norm(dim=-1, keepdim=True)


def product(matrix: Float[Tensor, "*batch m d"], vector: Vector) -> Float[Tensor, "*batch m"]:
    """Av, instance by instance."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
