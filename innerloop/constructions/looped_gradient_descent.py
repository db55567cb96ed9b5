"""Preconditioned gradient descent with one matrix, run exactly by a looped linear-attention block.

Algorithm  w ← w − A ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²,   the same A at every step
Invariant  register `y` holds yᵢ − ⟨w, xᵢ⟩ on context token i, −⟨w, x⟩ on a query
Proof      the head subtracts (1/n) Σᵢ (xⱼᵀA xᵢ)(yᵢ − ⟨w, xᵢ⟩) = ⟨w_next − w, xⱼ⟩ from `y` of j
Exact for  every n, d, number of queries and A, symmetric or not
Source     gatmiry2024.proposition-3.1; Z ← Z − (1/n) P Z M (ZᵀQZ), whose Q holds Aᵀ
"""

from functools import cached_property
from typing import Any

from innerloop.algorithms.preconditioned_gradient_descent import PreconditionedGradientDescent
from innerloop.constructions import preconditioned_gradient_descent as preconditioned
from innerloop.language import Data, State, define, dot, mean
from innerloop.language.classes import Cost, parameter
from innerloop.language.matrices import Matrices


@define(x=Data("d"), y=State())
def descend(me: Any, preconditioners: Any) -> None:
    me.y = me.y - mean(lambda j: dot(me.x, preconditioners @ j.x) * j.y)


descend.answer(preconditioned.answer)


class LoopedGradientDescentConstruction(preconditioned.PreconditionedGradientDescentConstruction):
    """Preconditioned gradient descent by one looped block.

    Registers and invariant are those of `preconditioned-gradient-descent`.
    """

    definition = descend
    source = "Gatmiry et al. 2024, Proposition 3.1, eqs. (3)–(5)"
    cost = Cost("k", "1", "d + 1", "one layer, k loops")
    looped = True

    preconditioners: Matrices = parameter("random", "A of every step: d×d, random or identity")

    @cached_property
    def algorithm(self) -> PreconditionedGradientDescent:
        return PreconditionedGradientDescent(self._make_preconditioners(1))
