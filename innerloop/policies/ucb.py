"""UCB1: choose the arm with the largest average reward + √(c ln t / N).

t is the number of steps so far, and N is the number of times that the arm was chosen. At first,
each arm is chosen once.
"""

from __future__ import annotations

import math
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.arms import ArmPolicy, Tally
from innerloop.policies.base import greedy_probabilities
from innerloop.problems.bandit import ActionSet


class UCBPolicy(ArmPolicy):
    """Chooses the arm with the highest upper confidence bound of its mean."""

    source: ClassVar[str] = "Auer et al. 2002, figure 1; Yang 2025, third paper, experiments"

    width: float = parameter(2.0, "c, the weight of the uncertainty", least=0)

    def probabilities(
        self, state: Tally, observation: ActionSet, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        log = math.log(max(observation.step, 1))
        return greedy_probabilities(
            state.means + (self.width * log / state.counts.clamp_min(1)).sqrt()
        )
