"""Subspace iteration V ← orth(A V) from its own starting vectors, the same for every problem.

A model whose prompt contains no starting vectors may have some in its weights. All entries of the
starting vectors are free. With one component, it is the power method from a fixed vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import hyperparameter
from innerloop.algorithms.subspace_iteration import (
    Components,
    SubspaceIteration,
    orthonormalise,
)
from innerloop.problems.principal_components import PCAProblem

STARTS, REWEIGHTINGS = 4, 8
"""Number of random starts that a fit tries, and of reweighting rounds of an estimate."""


@dataclass(frozen=True, eq=False)
class FixedStartIteration(SubspaceIteration):
    """Subspace iteration from `start`.

    The starting vectors of the problem only determine the number of components.
    """

    source: ClassVar[str] = "Golub and Van Loan 2013, Matrix computations, section 8.2.4"
    start: Float[Tensor, "*batch components d"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: PCAProblem) -> list[FixedStartIteration]:
        shape, generator = problem.start.shape[-2:], torch.Generator().manual_seed(0)
        normal = torch.randn(STARTS, *shape, generator=generator, dtype=torch.float64)
        return [cls(start) for start in orthonormalise(normal)]

    def estimate(
        self, problem: PCAProblem, answers: Float[Tensor, "batch _"], step: int
    ) -> FixedStartIteration:
        """Estimate the starting vectors from answers.

        An answer contains v vᵀ of each component, concatenated. After k steps Aᵏu lies in the span
        of the first components, for every prompt. The estimate of u is therefore the direction in
        which Σ ‖(I − P) Aᵏ u‖²/‖Aᵏ u‖² is least, where P is the projection on that span. The
        weights 1/‖Aᵏ u‖² come from the estimate of the previous round.
        """
        power = torch.linalg.matrix_power(problem.covariance, step)
        identity = torch.eye(problem.d).to(power)
        left, free, starts = identity.expand_as(power), identity, []
        for each in answers.unflatten(-1, (-1, *identity.shape)).unbind(dim=1):
            left = left - each
            starts.append(_find_start(left @ power, power, free))
            # Later starting vectors are orthogonal to earlier ones.
            free = torch.linalg.svd(torch.stack(starts), full_matrices=True).Vh[len(starts) :]
        return replace(self, start=torch.stack(starts).double().cpu())

    def init(self, problem: PCAProblem) -> Components:
        start = self.start.to(problem.x)
        return orthonormalise(start.expand(*problem.x.shape[:-2], *start.shape[-2:]))


def _find_start(
    missed: Float[Tensor, "batch d d"],
    power: Float[Tensor, "batch d d"],
    free: Float[Tensor, "left d"],
) -> Float[Tensor, " d"]:
    """Find the unit vector u in the span of `free` for which Σ ‖missed u‖²/‖power u‖² is least."""
    weights, start = 1 / power.square().sum(dim=(-2, -1)), free[0]
    for _ in range(REWEIGHTINGS):
        total = torch.einsum("b,bji,bjk->ik", weights, missed, missed)
        start = torch.linalg.eigh(free @ total @ free.mT).eigenvectors[:, 0] @ free
        weights = 1 / (power @ start).square().sum(dim=-1).clamp_min(1e-300)
    return start
