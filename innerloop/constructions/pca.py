"""Principal components by the power method with deflation, run by ReLU attention.

Algorithm  for each component, iterate v ← Av/‖Av‖, then A ← A − ‖Av‖ v vᵀ
Invariant  token j ≤ d holds column j of A in `cov` and e_j in `id`; every token holds all vectors
           in `v`; `x` holds the data; the scratch places are 0
Proof      the first block, with query id, key x and value x under 1/N, computes column j of A,
           (1/n) Σ x ⟨x, e_j⟩. Other blocks: see power_iteration.py. The answer is W̃₀ H W̃₁, which
           reads `v` of the first token
Bound      vectors have an error of ε = 3/2 δ² + 1/2 δ³ in length, none in direction; entries of A
           have an error of 4 ε ‖Av‖. δ ≈ (3/32) ln² r for knots of ratio r, so the error is
           proportional to knots⁻⁴
Holds for  n ≥ d as built, components ≤ d, and least ≤ ‖Av‖ ≤ most, checked on the data
Source     qliu2025.theorem-7 and its proof, with these changes: a key of the deflation reads the
           identity, values of the first layer map x only to the covariance, signed pairs subtract,
           new vectors replace old ones, starting vectors are on every token, and there are knots on
           ‖u‖² instead of heads over the sphere, whose number is exponential in d
"""

from functools import cached_property
from typing import Any

import torch

from innerloop.algorithms.power_method import PowerMethod
from innerloop.constructions.power_iteration import deflate, iterate, spread_covariance
from innerloop.constructions.spectral import SpectralConstruction
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, stack
from innerloop.language.classes import Cost, Registers, parameter
from innerloop.problems.principal_components import PrincipalComponents

REGISTERS = {"id": Data("d"), "cov": State("d"), "v": State("c", "d", shared=True)}


@define(prompt="components", x=Data("d"), **REGISTERS)
def find_components(me: Any, k: int, n: int, c: int, own: Any) -> None:
    turn, last = own.component_at(c, k)
    vectors = [me.v[i] for i in range(c)]
    vectors[turn] = iterate(me, own, vectors[turn])
    me.v = stack(vectors)
    if last:
        me.cov = deflate(me, own, vectors[turn])


@find_components.init
def _(me: Any) -> None:
    me.cov = spread_covariance(me)


@find_components.answer
def _(me: Any) -> Any:
    return me.v


class PCAConstruction(SpectralConstruction):
    """The power method with deflation.

    It has four blocks per iteration, five per component, and one for the covariance.
    """

    definition = find_components
    source = "Q. Liu 2025, Theorem 7"
    printed = "2τ + 4c + 1 layers, τ = k/c, and λ₁^d C/ε² heads"
    cost = Cost("4k + 5c + 1", "3", "cd + 5d + 4", printed, where="c = components")
    looped = False
    error = "6 δ² max(1, most), δ ≈ (3/32) ln² r"
    cases = (
        {"d": 1, "n": 3, "steps": 2, "components": 1},
        {"d": 3, "n": 3, "steps": 3, "components": 3},
        {"d": 6, "n": 25, "steps": 25, "components": 3},
        {"knots": 30, "most": 30.0, "steps": 9},
    )

    steps: int = parameter(40, "iterations of all components together", least=1, most=1_000)
    components: int = parameter(2, "number of eigenvectors", least=1, most=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components > min(self.d, self.steps):
            raise OutOfRangeError(
                f"components must be at most d={self.d} and at most steps={self.steps}, so that "
                f"each has an iteration, got {self.components}"
            )

    @cached_property
    def algorithm(self) -> PowerMethod:
        return PowerMethod(self.steps)

    def tolerance(self, dtype: torch.dtype) -> float:
        return super().tolerance(dtype) + 4 * self.length_error * max(1.0, self.most)

    def distributions(self) -> list[PrincipalComponents]:
        return [PrincipalComponents(d=self.d, n=self.n, components=self.components)]

    def accept(self, problem: Any) -> None:
        super().accept(problem)
        self.check_lengths(self.algorithm.lengths(problem))

    def represent(self, filled: Registers, state: Any) -> Registers:
        return {"cov": filled["id"] @ state.matrix.mT, "v": state.vectors.unsqueeze(-3)}
