"""Base class of policies for linear bandits, whose state is the ridge posterior."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.base import Policy
from innerloop.policies.posterior import Posterior, move_batch_last
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.environment import Environment


class LinearPolicy(Policy[Bandit, Posterior], ABC):
    """A policy whose state is the posterior of the weights."""

    environment_type: ClassVar[type[Environment]] = Bandit

    ridge: float = parameter(1.0, "λ, the weight of the ridge penalty", least=1e-12, most=1e12)

    def init_state(self, environment: Bandit) -> Posterior:
        return Posterior.prior(environment.action_features, self.ridge)

    def update(
        self,
        state: Posterior,
        observation: ActionSet,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Posterior:
        features = move_batch_last(observation.features)
        place = action.expand(1, features.shape[1], *action.shape)
        return state.update(features.gather(0, place).squeeze(0), reward)
