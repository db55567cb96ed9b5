"""Base class of bandits: each step offers actions with features, and the chosen one earns a reward.

The mean reward of each action is fixed. The regret of a step is the best mean minus that of the
chosen action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.problems.environment import Environment


class ActionSet(NamedTuple):
    """An observation in a bandit: the step, counted from 0, and the features of each action."""

    step: int
    features: Float[Tensor, "*batch actions d"]


class BanditHistory(NamedTuple):
    """The features, chosen actions and rewards of all steps of a game."""

    features: Float[Tensor, "*batch steps actions d"]
    actions: Int[Tensor, "*batch steps"]
    rewards: Float[Tensor, "*batch steps"]

    def truncate(self, steps: int) -> BanditHistory:
        """Return the history of the first `steps` steps."""
        return BanditHistory(
            self.features[..., :steps, :, :], self.actions[..., :steps], self.rewards[..., :steps]
        )


class Bandit(Environment, ABC):
    """A batch of bandits.

    If there is a single action set, it is offered at every step. If there are several, set t is
    offered at step t.
    """

    @property
    @abstractmethod
    def action_features(self) -> Float[Tensor, "*batch sets actions d"]:
        """The features of the actions in each set."""

    @property
    @abstractmethod
    def means(self) -> Float[Tensor, "*batch sets actions"]:
        """The mean reward of each action."""

    @property
    def sets(self) -> int:
        return self.action_features.shape[-3]

    @property
    def actions(self) -> int:
        return self.action_features.shape[-2]

    @property
    def d(self) -> int:
        return self.action_features.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.action_features.shape[:-3])

    @property
    def reference_tensor(self) -> Tensor:
        return self.action_features

    def check_steps(self, steps: int) -> None:
        super().check_steps(steps)
        if 1 < self.sets < steps:
            raise OutOfRangeError(
                f"expected at most {self.sets} steps, one for each action set of this bandit, got "
                f"{steps} steps: draw it with more sets, or with 1 for a fixed set"
            )

    @cached_property
    def _features_by_set(self) -> list[Tensor]:
        # Policies are faster if the batch is last in memory. The shapes remain the same.
        last = self.action_features.movedim((-3, -2, -1), (0, 1, 2)).contiguous()
        return [features.movedim((0, 1), (-2, -1)) for features in last]

    @cached_property
    def _means_by_set(self) -> list[Tensor]:
        return list(self.means.unbind(dim=-2))

    def observe(
        self, t: int, luck: Float[Tensor, "*batch"], previous: tuple[ActionSet, Tensor] | None
    ) -> ActionSet:
        return ActionSet(t, self._features_by_set[t % self.sets])

    def mean_reward(self, t: int, action: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Return the mean reward of an action at step t."""
        return self._means_by_set[t % self.sets].gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def action_values(self, observation: ActionSet) -> Float[Tensor, "*batch actions"]:
        return self._means_by_set[observation.step % self.sets]

    def build_history(
        self,
        observations: Sequence[ActionSet],
        actions: Int[Tensor, "*batch steps"],
        rewards: Float[Tensor, "*batch steps"],
    ) -> BanditHistory:
        steps = actions.shape[-1]
        features = self.action_features[..., :steps, :, :].expand(*self.batch, steps, -1, -1)
        return BanditHistory(features, actions, rewards)

    def regret(
        self, history: BanditHistory, plans: Sequence[Tensor]
    ) -> Float[Tensor, "*batch steps"]:
        steps = history.actions.shape[-1]
        means = self.means[..., :steps, :].expand(*self.batch, steps, -1)
        chosen = means.gather(-1, history.actions.unsqueeze(-1)).squeeze(-1)
        return means.amax(dim=-1) - chosen
