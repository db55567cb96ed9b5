"""Subspace iteration for principal components: V ← orth(A V) for all components at once.

A is the covariance, V holds one vector per component, and orth is Gram and Schmidt's method: the
first vector follows the power method, and each further one stays orthogonal to those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.problems.principal_components import PCAProblem

Components = Float[Tensor, "*batch components d"]


@dataclass(frozen=True, eq=False)
class SubspaceIteration(Algorithm[PCAProblem, Components]):
    """Subspace iteration from the problem's starting vectors; the state is orthonormal vectors."""

    source: ClassVar[str] = "Golub and Van Loan 2013, Matrix computations, section 8.2.4"
    problem_type: ClassVar = PCAProblem

    def init(self, problem: PCAProblem) -> Components:
        return orthonormalise(problem.start)

    def step(self, problem: PCAProblem, state: Components, k: int) -> Components:
        return orthonormalise(state @ problem.covariance)

    def predict(self, problem: PCAProblem, state: Components) -> Components:
        return state


def orthonormalise(vectors: Components) -> Components:
    """Make vectors orthonormal by Gram and Schmidt's method, keeping the first one's direction."""
    q, r = torch.linalg.qr(vectors.mT)
    # QR is unique if the diagonal of R is positive, which LAPACK does not guarantee.
    signs = r.diagonal(dim1=-2, dim2=-1).sign()
    return (q * torch.where(signs == 0, 1.0, signs).unsqueeze(-2)).mT
