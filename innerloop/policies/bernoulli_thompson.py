"""Thompson sampling for Bernoulli bandits: choose the best arm for a posterior sample of the means.

After k successes and f failures the posterior of an arm's mean, from a uniform prior, is
Beta(1 + k, 1 + f). A sample is the inverse of its distribution function at Φ(z), z ~ N(0, 1), which
is exact given z.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from scipy.special import betaincinv
from torch import Tensor

from innerloop.policies.arms import ArmPolicy, Tally
from innerloop.policies.base import greedy_probabilities
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.bernoulli_bandits import BernoulliBandit
from innerloop.problems.environment import Environment


class BernoulliThompsonPolicy(ArmPolicy):
    """Posterior sampling of the means of Bernoulli arms."""

    source: ClassVar[str] = "Yang 2025, third paper, experiments (Lin et al. 2023)"
    environment_type: ClassVar[type[Environment]] = BernoulliBandit

    def count_normals(self, environment: Bandit) -> int:
        return environment.actions

    def draw_chances(
        self, state: Tally, noise: Float[Tensor, "*batch arms"]
    ) -> Float[Tensor, "*batch arms"]:
        """Draw the means of the arms from their posterior."""
        parts = (1 + state.sums, 1 + state.counts - state.sums, torch.special.ndtr(noise))
        return torch.from_numpy(betaincinv(*(x.double().cpu().numpy() for x in parts))).to(noise)

    def probabilities(
        self, state: Tally, observation: ActionSet, noise: Float[Tensor, "*batch arms"]
    ) -> Float[Tensor, "*batch actions"]:
        return greedy_probabilities(self.draw_chances(state, noise))
