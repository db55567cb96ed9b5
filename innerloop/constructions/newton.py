"""Newton's iteration for least squares, run exactly by linear attention, one block per step.

Algorithm  M ← 2M − M S M,   S = XᵀX,   M₀ = αS,   ŵ = M Xᵀy
Invariant  register `m` of every token holds M x; `x`, `y` hold the prompt, `yhat` is 0
Proof      prologue: α Σⱼ xⱼ ⟨xᵢ, xⱼ⟩ = αS xᵢ into `m`. Step: attention adds −½ Σⱼ mⱼ ⟨mᵢ, xⱼ⟩ =
           −½ M S M xᵢ to `m`, then the MLP doubles `m`. Epilogue: Σⱼ ⟨m, xⱼ⟩ yⱼ = ⟨ŵ, x⟩ into
           `yhat`
Exact for  every n up to the built one, d and number of queries. Rounding doubles at every step
           until the iteration has converged: up to 20 steps, or while α λmin(S)² ≥ 1e-7
Source     yang2025.fu.newton. Queries read m and keys read x. The reverse is the same in exact
           arithmetic, but its rounding doubles at every step, also after convergence. α must be
           below 2/λmax(S)²; the source's α = 2/‖SSᵀ‖ equals this limit
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from innerloop.algorithms.newton import Newton
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, dot, total
from innerloop.language.classes import Cost, Registers, RegressionProgram, parameter

SAFE_STEPS, SAFE_RATIO = 20, 1e-7
"""Limits that keep the rounding error below 1e-10: a number of steps, or a value of αλmin².

Rounding doubles at every step until the iteration has converged, after log₂(1/αλmin²) steps."""

MIN_BOUND = 1e-150
"""The least λmax(XᵀX) whose inverse square, and its multiples, are finite in float64."""


@define(x=Data("d"), m=State("d"), y=Data())
def iterate(me: Any) -> None:
    me.m = 2 * me.m - total(lambda j: dot(me.m, j.x) * j.m)


@iterate.init
def _(me: Any, alpha: Any) -> None:
    me.m = total(lambda j: dot(me.x, j.x) * (alpha * j.x))


@iterate.answer
def yhat(me: Any) -> Any:
    return total(lambda j: dot(me.m, j.x) * j.y)


class NewtonConstruction(RegressionProgram):
    """Newton's iteration by linear attention, in k + 2 blocks with one head each.

    The block of a step has an MLP of 2d hidden units.
    """

    definition = iterate
    source = "Yang 2025, first paper (Fu et al. 2023)"
    cost = Cost("k + 2", "1", "2d + 2", "k + O(1) layers, width O(d)")
    looped = False

    n: int = parameter(20, "largest number of examples, for the default α", least=1, most=10_000)
    alpha: float | None = parameter(
        None, "α; 1/(λmax(Σ)² (√n + √d + 6)⁴) if none, below 1/λmax(XᵀX)²", least=1e-300
    )

    @cached_property
    def algorithm(self) -> Newton:
        # λmax(XᵀX) ≤ λmax(Σ)(√n + √d + t)² with probability 1 − exp(−t²/2). This a-priori bound is
        # used because weights must not depend on the data.
        sigma = 1.0 if self.covariance is None else torch.linalg.eigvalsh(self.covariance)[-1]
        bound = float(sigma) * (self.n**0.5 + self.d**0.5 + 6.0) ** 2
        if self.alpha is None and not MIN_BOUND <= bound <= 1 / MIN_BOUND:
            raise OutOfRangeError(
                f"expected a bound of λmax(XᵀX) of at least {MIN_BOUND:g}, so that α = 1/λmax² is "
                f"finite, got {bound:.1e} for this covariance: scale the data up, or set alpha"
            )
        alpha = bound**-2 if self.alpha is None else self.alpha
        return Newton(torch.tensor(alpha, dtype=torch.float64))

    def distributions(self) -> Any:
        first, second = super().distributions()
        return [first, replace(second, n=min(self.n, max(2 * self.d, second.n)))]

    def accept(self, problem: Any) -> None:
        super().accept(problem)
        if self.alpha is None and problem.n > self.n:
            raise OutOfRangeError(
                f"{self.name} was built for up to n={self.n} examples, on which its α depends, got "
                f"n={problem.n}: build it with a larger n"
            )
        if self.steps <= SAFE_STEPS:
            return
        least = torch.linalg.eigvalsh(problem.x.mT @ problem.x)[..., 0].clamp_min(0.0)
        ratio = float((self.algorithm.alpha.to(least) * least.square()).min())
        if ratio < SAFE_RATIO:
            raise OutOfRangeError(
                f"{self.name} is exact for up to {SAFE_STEPS} steps, or if α λmin(XᵀX)² ≥ "
                f"{SAFE_RATIO}; got {self.steps} steps and {ratio:.1e}: use fewer steps or more "
                "examples"
            )

    def represent(self, filled: Registers, state: Any) -> Registers:
        return {"m": filled["x"] @ state.mT}
