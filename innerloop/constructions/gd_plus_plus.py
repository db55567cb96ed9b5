"""GD++, gradient steps on covariates that every layer transforms, run exactly by linear attention.

Algorithm  w ← w − Tᵀ A T ∇R(w),   T ← T − B T G Tᵀ Aᵀ T,   G = (1/n) Σᵢ xᵢ xᵢᵀ
Invariant  register `x` holds T x of every token; `y` holds yᵢ − ⟨w, xᵢ⟩ on context token i and
           −⟨w, x⟩ on a query, where x are the token's original covariates
Proof      the score of query j and key i is −(T xⱼ)ᵀ A (T xᵢ). Value y→y adds
           −(1/n) Σᵢ (T xⱼ)ᵀ A (T xᵢ)(yᵢ − ⟨w, xᵢ⟩) = −⟨w_next − w, xⱼ⟩ to `y` of token j; value
           x→x by B adds −(1/n) Σᵢ B T xᵢ (T xᵢ)ᵀ Aᵀ (T xⱼ) = (T_next − T) xⱼ to `x` of token j
Exact for  every n, d, number of queries, A and B, symmetric or not
Source     ahn2023.gdpp, eq. (13); its Q holds −Aᵀ, its P holds B
"""

from functools import cached_property
from typing import Any

from innerloop.algorithms.gd_plus_plus import GDPlusPlus
from innerloop.constructions import preconditioned_gradient_descent as preconditioned
from innerloop.language import State, define, dot, mean
from innerloop.language.classes import Registers, parameter
from innerloop.language.matrices import Matrices, make_matrices


@define(x=State("d"), y=State())
def improve(me: Any, preconditioners: Any, transforms: Any) -> None:
    def meet(j: Any) -> Any:
        return -dot(me.x, preconditioners @ j.x)

    moved = me.x + transforms @ mean(lambda j: meet(j) * j.x)
    me.x, me.y = moved, me.y + mean(lambda j: meet(j) * j.y)


improve.answer(preconditioned.answer)


class GDPlusPlusConstruction(preconditioned.PreconditionedGradientDescentConstruction):
    """GD++ by linear attention, in one block with one head per step.

    Its registers are those of `preconditioned-gradient-descent`.
    """

    definition = improve
    source = "Ahn et al. 2023, eq. (13)"

    transform_size: float | None = parameter(None, "scale of B if it is not explicit; 0.5 if none")
    transforms: Matrices = parameter("random", "B of each step: d×d, steps×d×d, random or identity")

    @cached_property
    def algorithm(self) -> GDPlusPlus:
        scale, steps = self.transform_size, self.steps
        transforms = make_matrices(self.transforms, scale, 0.5, "transforms", steps, self.d, seed=2)
        return GDPlusPlus(self._make_preconditioners(steps), transforms)

    def represent(self, filled: Registers, state: Any) -> Registers:
        fitted = super().represent(filled, state.weights)
        return {**fitted, "x": filled["x"] @ state.transform.mT}
