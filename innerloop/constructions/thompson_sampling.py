"""Soft Thompson sampling on linear bandits, run exactly by causal ReLU attention.

Algorithm  odds of a_k ∝ exp(⟨a_k, w⟩/τ), w = ŵ + s Σ_j weight_j (G + shift_j I)⁻¹ z, where the sum
           approximates G^(−1/2) z and G = λI + Σ φφᵀ. A step is an accelerated gradient step for
           ŵ and every term of the sum: see algorithms/
Invariant  see linear_bandit.py: `ahead` and `behind` hold 1 + m systems, the first one for ŵ; the
           first token of a step holds the normals z, which are part of the prompt
Proof      steps: see linear_bandit.py, each system with its own η, β and ridge λ + shift_j.
           Epilogue: w is linear in `behind`, so a signed pair for each action, which attends to its
           own token only, has the score ⟨w, a_k⟩ and adds ⟨w, a_k⟩/τ to `score`
Policy     in the declared range the log odds differ from the policy linear-thompson with the same z
           by at most `accuracy`, 2B/τ ((1 + kq)(1 − q)^k (‖ŵ‖ + s‖z‖/√λ) + δ s‖z‖/√λ), with δ
           the error of the root, 2ω/(1 + ω), that falls geometrically with m (inverse_root.py)
Exact for  up to T steps, A actions with ‖a‖ ≤ B, |rewards| ≤ reward, ‖z‖ ≤ normal; all checked
Source     yang2025.lin.theorem-10, which computes the root by a Padé decomposition, also a sum of
           shifted inverses. The normals are part of the prompt
"""

from functools import cached_property
from typing import Any

import torch

from innerloop.algorithms.accelerated_ridge import StepRates
from innerloop.algorithms.inverse_root import InverseRoot, inverse_root
from innerloop.algorithms.thompson_sampling import ThompsonSampling
from innerloop.constructions.linear_bandit import LinearBanditConstruction, define_solver
from innerloop.language import Data, dot, own_total, stack
from innerloop.language.classes import Cost, parameter
from innerloop.policies.linear_thompson import LinearThompsonPolicy

solve = define_solver(lambda token, s: token.z, z=Data("d"))


@solve.answer
def score(me: Any, A: int, own: Any) -> Any:
    w = sum(share * me.behind[s] for s, share in enumerate(own.algorithm.mix.tolist()))
    products = [own_total(lambda j, k=k: dot(w, j.a[k]), "pos", own.max_score) for k in range(A)]
    return stack(products) / own.temperature


class ThompsonSamplingConstruction(LinearBanditConstruction):
    """Soft Thompson sampling: one block for the features, one per step, one for the read-out."""

    definition = solve
    source = "Yang 2025, third paper, Theorem 10 (Lin et al. 2023)"
    cost = Cost("k + 2", "max(2m + 3, 2A)", "Ad + 4d + 2md + 2A + 3", where="A = arms, m = terms")
    cases = (
        {"ridge": 0.1, "arms": 5, "n": 12, "terms": 8, "steps": 20},
        {"terms": 1, "arms": 4, "n": 5, "steps": 5},
        {"scale": 2.0, "temperature": 0.1, "n": 6, "steps": 8},
        {"bound": 3.0, "reward": 30.0, "d": 4, "n": 5, "steps": 6},
    )

    scale: float = parameter(0.5, "s, standard deviation of reward noise", least=0, most=1e6)
    terms: int = parameter(6, "m, terms of the inverse root", least=1, most=64)
    normal: float = parameter(10.0, "the largest ‖z‖", least=1e-6, most=1e6)

    @cached_property
    def root(self) -> InverseRoot:
        """The approximation of G^(−1/2) on all spectra that n − 1 actions can have."""
        return inverse_root(self.terms, self.ridge, self.ridge + (self.n - 1) * self.bound**2)

    @cached_property
    def algorithm(self) -> ThompsonSampling:
        one = torch.ones(1, dtype=torch.float64)
        ridges = self.ridge + torch.cat([0 * one, self.root.shifts])
        mix = torch.cat([one, self.scale * self.root.weights])
        temperature = torch.tensor(self.temperature, dtype=torch.float64)
        return ThompsonSampling(ridges, StepRates.of(ridges, self.bound, self.n), mix, temperature)

    @cached_property
    def policy(self) -> LinearThompsonPolicy:
        known = {"ridge": self.ridge, "scale": self.scale, "temperature": self.temperature}
        return LinearThompsonPolicy(**known)

    @property
    def max_deviation(self) -> float:
        """An upper bound of ‖s G^(−1/2) z‖; the sum of terms never exceeds the root."""
        return self.scale * self.normal / self.ridge**0.5

    @property
    def max_score(self) -> float:
        return 2 * self.bound * max(self.max_estimate + self.max_deviation, 1e-6)

    @property
    def accuracy(self) -> float:
        """An upper bound of the difference of log odds to the policy, for data in range."""
        remaining = float(self.algorithm.rates.remaining_share(self.steps).max())
        unsolved = remaining * (self.max_estimate + self.max_deviation)
        off = unsolved + self.root.error * self.max_deviation
        return 2 * self.bound * off / self.temperature
