"""Preconditioned gradient descent on least squares, run exactly by linear attention.

Algorithm  w ← w − A ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²,   with a matrix A for each step
Invariant  register `y` holds yᵢ − ⟨w, xᵢ⟩ on context token i, −⟨w, x⟩ on a query
Proof      the head adds −(1/n) Σᵢ (xⱼᵀA xᵢ)(yᵢ − ⟨w, xᵢ⟩) = −⟨w_next − w, xⱼ⟩ to `y` of token j
Exact for  every n, d, number of queries and A, symmetric or not
Source     ahn2023.lemma-2; its Q holds −Aᵀ (there A is negative definite for descent)
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.preconditioned_gradient_descent import PreconditionedGradientDescent
from innerloop.language import Data, State, define, dot, mean
from innerloop.language.classes import Cost, Registers, RegressionProgram, parameter
from innerloop.language.matrices import Matrices, make_matrices


@define(x=Data("d"), y=State())
def descend(me: Any, preconditioners: Any) -> None:
    me.y = me.y + mean(lambda j: -dot(me.x, preconditioners @ j.x) * j.y)


@descend.answer
def answer(me: Any) -> Any:
    return -me.y


class PreconditionedGradientDescentConstruction(RegressionProgram):
    """Preconditioned gradient descent by linear attention: one block with one head per step."""

    definition = descend
    source = "Ahn et al. 2023, Lemma 2, eq. (9)"
    cost = Cost("k", "1", "d + 1", "k layers")
    looped = False
    tolerances = {torch.float64: 1e-10, torch.float32: 5e-6}

    step_size: float | None = parameter(None, "scale of A if it is not explicit; 0.1 if none")
    preconditioners: Matrices = parameter(
        "random", "A of each step: d×d, steps×d×d, random, identity"
    )

    @cached_property
    def algorithm(self) -> Any:
        return PreconditionedGradientDescent(self._make_preconditioners(self.steps))

    def _make_preconditioners(self, count: int) -> Tensor:
        preconditioners, scale = self.preconditioners, self.step_size
        return make_matrices(preconditioners, scale, 0.1, "preconditioners", count, self.d, seed=1)

    def represent(self, filled: Registers, state: Any) -> Registers:
        return {"y": filled["y"] - (filled["x"] @ state.unsqueeze(-1)).squeeze(-1)}
