"""Block Krylov iteration: the best components in span{V, AV, …, A^k V}, by Rayleigh and Ritz.

A is the covariance and V the starting vectors. After k steps the prediction is, of all vectors in
that space, those of the largest variance.
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
    """State: an orthonormal basis, larger by a block at every step until it is everything."""

    source: ClassVar[str] = "Musco and Musco 2015, Randomized block Krylov methods, Algorithm 2"
    problem_type: ClassVar = PCAProblem

    def init(self, problem: PCAProblem) -> Basis:
        return orthonormalise(problem.start)

    def step(self, problem: PCAProblem, state: Basis, k: int) -> Basis:
        left = problem.d - state.shape[-2]
        if left == 0:
            return state
        block = state[..., -problem.components :, :] @ problem.covariance
        for _ in range(2):  # once more, since rounding leaves a part in the space so far
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
