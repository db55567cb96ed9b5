"""Thompson sampling for Bernoulli bandits: the best arm for chances drawn from their posterior.

After k successes and f failures a chance that was uniform is Beta(1 + k, 1 + f). A draw of it is
the inverse of its distribution function at Φ(z), z ~ N(0, 1): exact given z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from scipy.special import betaincinv
from torch import Tensor

from innerloop.policies.arms import ArmPolicy, Tally
from innerloop.policies.base import greedy
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.bernoulli_bandits import BernoulliBandit
from innerloop.problems.environment import Environment


@dataclass(frozen=True, kw_only=True, eq=False)
class BernoulliThompson(ArmPolicy):
    """Posterior sampling of the chances of Bernoulli arms."""

    source: ClassVar[str] = "Yang 2025, third paper, experiments (Lin et al. 2023)"
    plays: ClassVar[type[Environment]] = BernoulliBandit

    def normals(self, environment: Bandit) -> int:
        return environment.actions

    def chances(
        self, state: Tally, noise: Float[Tensor, "*batch arms"]
    ) -> Float[Tensor, "*batch arms"]:
        """A draw from the posterior."""
        parts = (1 + state.sums, 1 + state.counts - state.sums, torch.special.ndtr(noise))
        return torch.from_numpy(betaincinv(*(x.double().cpu().numpy() for x in parts))).to(noise)

    def probabilities(
        self, state: Tally, observation: ActionSet, noise: Float[Tensor, "*batch arms"]
    ) -> Float[Tensor, "*batch actions"]:
        return greedy(self.chances(state, noise))
