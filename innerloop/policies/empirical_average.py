"""ε-greedy: choose the arm with the largest average reward, or with probability ε a random arm.

At first, each arm is chosen once.
"""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.arms import ArmPolicy, Tally
from innerloop.policies.base import greedy_probabilities
from innerloop.problems.bandit import ActionSet


class EmpiricalAveragePolicy(ArmPolicy):
    """Chooses the arm with the largest average reward, or with probability ε a random arm."""

    source: ClassVar[str] = "Yang 2025, third paper, experiments (Lin et al. 2023)"

    epsilon: float = parameter(0.0, "ε, the probability of a random action", least=0, most=1)

    def probabilities(
        self, state: Tally, observation: ActionSet, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        best = greedy_probabilities(state.means)
        return (1 - self.epsilon) * best + self.epsilon / best.shape[-1]
