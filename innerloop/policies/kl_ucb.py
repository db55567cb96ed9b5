"""KL-UCB: choose the arm with the highest upper confidence bound for Bernoulli rewards.

    index = max{ q : N kl(p̂, q) ≤ ln t + c ln ln t },   kl(p, q) = p ln(p/q) + (1−p) ln((1−p)/(1−q))

p̂ is the average reward of an arm, N is the number of times that it was chosen, and t is the number
of steps so far. At first, each arm is chosen once. A negative ln ln t counts as 0.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.arms import ArmPolicy, Tally
from innerloop.policies.base import greedy_probabilities
from innerloop.problems.bandit import ActionSet
from innerloop.problems.bernoulli_bandits import BernoulliBandit
from innerloop.problems.environment import Environment

BISECTIONS = 50
"""The number of bisections of [p̂, 1] that determine the index, with an error of 1e-15."""


class KLUCBPolicy(ArmPolicy):
    """Chooses the arm with the highest KL upper confidence bound of its mean."""

    source: ClassVar[str] = "Garivier and Cappé 2011, Algorithm 1"
    environment_type: ClassVar[type[Environment]] = BernoulliBandit

    width: float = parameter(0.0, "c, the weight of ln ln t", least=0)

    def probabilities(
        self, state: Tally, observation: ActionSet, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        return greedy_probabilities(self.compute_index(state, observation.step))

    def compute_index(self, state: Tally, step: int) -> Float[Tensor, "*batch arms"]:
        """Return the upper confidence bound of each arm; infinite for an arm never chosen."""
        log = math.log(max(step, 1))
        allowed = (log + self.width * math.log(max(log, 1.0))) / state.counts.clamp_min(1)
        mean = torch.where(state.counts == 0, 0.0, state.means)
        low, high = mean, torch.ones_like(mean)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            inside = bernoulli_divergence(mean, middle) <= allowed
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        return torch.where(state.counts == 0, torch.inf, low)


def bernoulli_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return kl(p, q) = p ln(p/q) + (1−p) ln((1−p)/(1−q)), with 0 ln 0 = 0."""
    return (
        torch.xlogy(p, p)
        - torch.xlogy(p, q)
        + torch.xlogy(1 - p, 1 - p)
        - torch.xlogy(1 - p, 1 - q)
    )
