"""A network learns to play Bernoulli bandits by imitating Thompson sampling, UCB1 or the best arm.

Setting  5 arms with success probabilities uniform on [0, 1], games of 200 steps
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal

from innerloop.parameters import parameter
from innerloop.policies.base import Policy
from innerloop.policies.bernoulli_thompson import BernoulliThompsonPolicy
from innerloop.policies.ucb import UCBPolicy
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.recipes.bandits import BanditRecipe


class BernoulliBanditsRecipe(BanditRecipe):
    """A network that imitates an expert in games of Bernoulli bandits."""

    source: ClassVar[str] = "Yang 2025, third paper, experiments (Lin et al. 2023)"
    small: ClassVar = {
        **{"arms": 3, "horizon_steps": 12, "pool": 8, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 8},
    }
    shows_features: ClassVar[bool] = False

    arms: int = parameter(5, "actions", least=2, most=1000)
    policy: Literal["thompson", "ucb"] = parameter("thompson", "policy that plays the games")

    @property
    def features(self) -> int:
        return self.arms

    @cached_property
    def teacher(self) -> Policy[Any, Any]:
        return BernoulliThompsonPolicy() if self.policy == "thompson" else UCBPolicy()

    def build_distribution(self) -> BernoulliBandits:
        return BernoulliBandits(arms=self.arms)
