"""Block Krylov iteration: the best components in span{V, AV, …, A^k V}, by Rayleigh and Ritz.

A is the covariance and V the starting vectors. The prediction after k steps consists of the vectors
of this space along which the variance is largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.subspace_iteration import Components, orthonormalise
from innerloop.problems.principal_components import PCAProblem

Basis = Float[Tensor, "*batch _ d"]


@dataclass(frozen=True, eq=False)
class BlockKrylov(Algorithm[PCAProblem, Basis]):
    """Block Krylov iteration, whose state is an orthonormal basis.

    The basis grows by a block at every step until it spans the whole space.
    """

    source: ClassVar[str] = "Musco and Musco 2015, Randomized block Krylov methods, Algorithm 2"
    problem_type: ClassVar = PCAProblem

    def init(self, problem: PCAProblem) -> Basis:
        return orthonormalise(problem.start)

    def step(self, problem: PCAProblem, state: Basis, k: int) -> Basis:
        left = problem.d - state.shape[-2]
        if left == 0:
            return state
        block = state[..., -problem.components :, :] @ problem.covariance
        for _ in range(
            2
        ):  # twice, because rounding leaves a component in the span of earlier vectors
            block = block - block @ state.mT @ state
            block = block / block.norm(dim=-1, keepdim=True)
        return torch.cat([state, orthonormalise(block[..., :left, :])], dim=-2)

    def predict(self, problem: PCAProblem, state: Basis) -> Components:
        """Return the leading Ritz vectors, with the signs of the starting vectors."""
        small = state @ problem.covariance @ state.mT
        leading = torch.linalg.eigh(small).eigenvectors.flip(-1)[..., : problem.components]
        vectors = leading.mT @ state
        signs = (vectors * problem.start).sum(dim=-1, keepdim=True).sign()
        return vectors * torch.where(signs == 0, 1.0, signs)
