"""A network learns to play linear bandits by imitating LinUCB or the best action.

Setting  as in the source's experiments: 5 features, a fixed set of 10 actions from [−1, 1]⁵,
         weights uniform on [0, 1]⁵, noise of standard deviation 1.5, games of 200 steps
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from innerloop.parameters import parameter
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.recipes.bandits import BanditRecipe


class LinearBanditsRecipe(BanditRecipe):
    """A network that imitates an expert in games of linear bandits."""

    source: ClassVar[str] = "Yang 2025, third paper, experiments (Lin et al. 2023)"
    small: ClassVar = {
        **{"d": 2, "arms": 3, "horizon_steps": 12, "pool": 8, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 8},
    }
    shows_features: ClassVar[bool] = True

    d: int = parameter(5, "features", least=1, most=512)
    noise: float = parameter(1.5, "σ, the standard deviation of the reward's noise", least=0)
    prior: Literal["normal", "uniform"] = parameter("uniform", "w uniform on [0, 1]ᵈ, or N(0, I/d)")
    alpha: float = parameter(2.0, "α of LinUCB", least=0)
    ridge: float = parameter(1.0, "λ of LinUCB", least=1e-12, most=1e12)
    temperature: float = parameter(0.0, "τ of LinUCB; 0 takes the best score", least=0)

    @property
    def features(self) -> int:
        return self.d

    @cached_property
    def teacher(self) -> LinUCBPolicy:
        return LinUCBPolicy(alpha=self.alpha, ridge=self.ridge, temperature=self.temperature)

    def build_distribution(self) -> LinearBandits:
        return LinearBandits(d=self.d, arms=self.arms, noise=self.noise, prior=self.prior)
