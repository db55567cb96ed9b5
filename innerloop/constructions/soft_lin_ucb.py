"""Soft LinUCB on linear bandits, run by causal ReLU attention, at every step of a game.

Algorithm  odds of a_k ∝ exp( (⟨a_k, ŵ⟩ + α √⟨a_k, G⁻¹a_k⟩) / τ ), G = λI + Σ φφᵀ. A step computes
           one accelerated gradient step for ŵ and every G⁻¹a_k: see algorithms/
Invariant  see linear_bandit.py: `ahead` and `behind` hold 1 + A systems, the first one for ŵ
Proof      steps: see linear_bandit.py. Epilogue: a signed pair for each action that attends only to
           its own token adds ⟨ŵ, a_k⟩/τ to `score`, a single head adds ⟨G⁻¹a_k, a_k⟩, which is
           never negative, to `width`. The MLP adds (α/τ)(√width − √M) on knots: the constant has no
           effect on softmax, and terms cancel less in hinges that start at the far end
Bound      on the m + 1 knots M (j/m)⁴ the root is at most √M/(2m²) too small, because the error of
           a chord between a² and b² is (b − a)²/(4(a + b)); so log odds have an error of
           (α/τ)√M/(2m²). With M = 2B²/λ, all steps of the solves are in range. The error is
           proportional to knots⁻²
Policy     in the declared range the log odds differ from the policy lin-ucb by at most `accuracy`,
           2/τ (1 + kq)(1 − q)^k B (‖ŵ‖ + α/√λ) and the knots: k ≈ √κ log(1/ε), q = 1/√κ, and
           κ = (2T − 1)(B²/2 + λ)/λ; so the number of layers is proportional to √T
Holds for  up to T steps, A actions with ‖a‖ ≤ B, |rewards| ≤ reward; all checked on the data
Source     yang2025.lin.theorem-8. Layers and width have the order that the source states
"""

from functools import cached_property, partial
from typing import Any

import torch

from innerloop.algorithms.accelerated_ridge import StepRates
from innerloop.algorithms.soft_lin_ucb import SoftLinUCB
from innerloop.constructions.linear_bandit import LinearBanditConstruction, define_solver
from innerloop.language import dot, own_total, piecewise, relu, stack
from innerloop.language.classes import Cost, parameter
from innerloop.policies.lin_ucb import LinUCBPolicy

solve = define_solver(lambda token, s: token.a[s - 1])


@solve.answer
def score(me: Any, A: int, own: Any) -> Any:
    def multiply(product: Any) -> Any:
        return stack([own_total(partial(product, k), "pos", own.max_score) for k in range(A)])

    gain, largest = float(own.alpha) / float(own.temperature), float(own.max_square)
    knots = largest * torch.linspace(0.0, 1.0, own.knots, dtype=torch.float64) ** 4
    fit = multiply(lambda k, j: dot(me.behind[0], j.a[k]))
    me.width = multiply(lambda k, j: relu(dot(me.behind[1 + k], j.a[k])))
    root = piecewise(me.width, lambda square: gain * (square.sqrt() - largest**0.5), knots)
    return fit / own.temperature + root


class SoftLinUCBConstruction(LinearBanditConstruction):
    """Soft LinUCB: one block for the features, one per step, one for the read-out."""

    definition = solve
    source = "Yang 2025, third paper, Theorem 8 (Lin et al. 2023)"
    cost = Cost(
        "k + 2", "max(2A + 3, 3A)", "3Ad + 3d + 3A + 3", "Õ(√T) layers, width O(dA)", "A = arms"
    )
    exact, error = False, "(α/τ) √M/(2m²), M = 2B²/λ, m + 1 knots"
    cases = (
        {"ridge": 0.1, "arms": 5, "n": 12, "steps": 20},
        {"alpha": 0.0, "steps": 5},
        {"alpha": 3.0, "temperature": 0.1, "knots": 200, "n": 6, "steps": 8},
        {"bound": 3.0, "reward": 30.0, "d": 4, "n": 5, "steps": 6},
    )

    alpha: float = parameter(1.0, "α, the weight of the uncertainty", least=0, most=1e6)
    knots: int = parameter(500, "knots of the root", least=2, most=100_000)

    @cached_property
    def algorithm(self) -> SoftLinUCB:
        numbers = torch.tensor([self.ridge, self.alpha, self.temperature], dtype=torch.float64)
        ridges = numbers[0].expand(1 + self.arms)
        return SoftLinUCB(ridges, StepRates.of(ridges, self.bound, self.n), *numbers[1:])

    @cached_property
    def policy(self) -> LinUCBPolicy:
        return LinUCBPolicy(ridge=self.ridge, alpha=self.alpha, temperature=self.temperature)

    @property
    def max_square(self) -> float:
        """The bound M of ⟨x, a⟩: in every step it is at most twice its limit, which is ≤ B²/λ."""
        return 2 * self.bound**2 / self.ridge

    @property
    def max_score(self) -> float:
        return max(2 * self.bound * self.max_estimate, self.max_square)

    @property
    def interpolation_error(self) -> float:
        """The error of the log odds due to interpolation between knots."""
        return self.alpha / self.temperature * (self.max_square**0.5 / (2 * (self.knots - 1) ** 2))

    @property
    def accuracy(self) -> float:
        """An upper bound of the difference of log odds to the policy, for data in range."""
        remaining = float(self.algorithm.rates.remaining_share(self.steps).max())
        far = remaining * self.bound * (self.max_estimate + self.alpha / self.ridge**0.5)
        return 2 * far / self.temperature + self.interpolation_error

    def tolerance(self, dtype: torch.dtype) -> float:
        return super().tolerance(dtype) + self.interpolation_error
