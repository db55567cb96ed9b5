"""Oja's rule for principal components: move towards each point by its projection, then normalise.

    V ← orth(V + η ⟨x, V⟩ x)        for the points x in their order

V holds one vector per component; orth is Gram and Schmidt's method. A step is either one pass over
the points or one point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.regression import to_scalar_tensor
from innerloop.algorithms.subspace_iteration import Components, orthonormalise
from innerloop.problems.principal_components import PCAProblem


@dataclass(frozen=True, eq=False)
class Oja(Algorithm[PCAProblem, Components]):
    """Oja's rule with η = `step_size` for all points, from the starting vectors of the problem."""

    source: ClassVar[str] = "Oja 1982; for several components Oja and Karhunen 1985"
    problem_type: ClassVar = PCAProblem
    step_size: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    takes_passes: bool = True

    @classmethod
    def guesses(cls, problem: PCAProblem) -> list[Oja]:
        power = float(problem.x.square().sum(dim=-1).mean())
        return [
            cls(to_scalar_tensor(share / power), passes)
            for passes in (True, False)
            for share in (0.02, 0.1, 0.4)
        ]

    def init(self, problem: PCAProblem) -> Components:
        return orthonormalise(problem.start)

    def step(self, problem: PCAProblem, state: Components, k: int) -> Components:
        size = self.step_size.to(problem.x)[..., None, None]
        places = range(problem.n) if self.takes_passes else [k % problem.n]
        for i in places:
            point = problem.x[..., i, :].unsqueeze(-2)
            state = orthonormalise(state + size * (state @ point.mT) @ point)
        return state

    def predict(self, problem: PCAProblem, state: Components) -> Components:
        return state
