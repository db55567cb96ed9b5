"""A network learns to plan in tabular decision processes by imitating UCB-VI or the best action.

Setting  random processes (uniform Dirichlet transitions, uniform rewards), or RiverSwim
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError, OutOfRangeError
from innerloop.parameters import parameter
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.problems.river_swim import RiverSwim
from innerloop.problems.tabular_games import TabularGameProblem
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.recipes.decisions import DecisionRecipe, Steps


class TabularMDPsRecipe(DecisionRecipe):
    """A network that imitates an expert in games of tabular decision processes."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023)"
    small: ClassVar = {
        **{"states": 2, "arms": 2, "horizon": 2, "horizon_steps": 8, "pool": 8, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 16},
    }

    problem: Literal["random", "river"] = parameter("random", "the decision processes")
    states: int = parameter(3, "states S", least=1, most=1000)
    arms: int = parameter(2, "actions A", least=2, most=1000)
    horizon: int = parameter(4, "steps of an episode H", least=1, most=1000)
    horizon_steps: int = parameter(80, "T, steps of a game", least=1, most=100_000)
    bonus: float = parameter(0.05, "c of UCB-VI, the weight of the uncertainty", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon_steps % self.horizon:
            raise InputError(
                f"horizon_steps must be whole episodes of {self.horizon}, got {self.horizon_steps}"
            )
        if self.problem == "river" and (self.arms != 2 or self.states < 2):
            raise InputError(
                "RiverSwim has 2 actions and at least 2 states, got "
                f"arms={self.arms}, states={self.states}"
            )

    @property
    def actions(self) -> int:
        return self.arms

    @property
    def observation_size(self) -> int:
        return self.horizon + self.states

    @cached_property
    def teacher(self) -> UCBVIPolicy:
        return UCBVIPolicy(steps=self.horizon_steps, bonus=self.bonus)

    def build_distribution(self) -> Distribution:
        if self.problem == "river":
            return RiverSwim(states=self.states, horizon=self.horizon)
        return TabularMDPs(states=self.states, arms=self.arms, horizon=self.horizon)

    def show(self, observation: Situation) -> Float[Tensor, "*batch numbers"]:
        steps = torch.full_like(observation.state, observation.step)
        return self._mark(steps, observation.state)

    def _mark(self, steps: Tensor, states: Tensor) -> Float[Tensor, "*batch numbers"]:
        hot = torch.nn.functional.one_hot
        return torch.cat([hot(steps, self.horizon), hot(states, self.states)], dim=-1).float()

    def describe_actions(
        self, observations: Float[Tensor, "*batch numbers"], actions: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch described"]:
        """Encode actions together with the step and the state in which they were chosen."""
        hot = torch.nn.functional.one_hot(actions, self.arms).to(observations)
        return torch.cat([observations, hot], dim=-1)

    def read_problem(self, problem: TabularGameProblem) -> Steps:
        self._check_sizes(problem.horizon, *problem.sizes)
        states = problem.states.flatten(-2)
        steps = torch.arange(problem.horizon, device=states.device).repeat(problem.episodes)
        marks = self._mark(steps.expand_as(states), states)
        return Steps(marks, problem.actions.flatten(-2), problem.rewards.flatten(-2))

    def check_environment(self, environment: Environment) -> None:
        if not isinstance(environment, TabularMDP):
            kind = type(environment).__name__
            raise OutOfRangeError(f"{self.name} expects decision processes to play in, got {kind}")
        self._check_sizes(environment.horizon, environment.states, environment.actions)

    def _check_sizes(self, horizon: int, states: int, arms: int) -> None:
        if (horizon, states, arms) != (self.horizon, self.states, self.arms):
            raise OutOfRangeError(
                f"{self.name} was trained on episodes of {self.horizon} steps in {self.states} "
                f"states with {self.arms} actions, got {horizon}, {states} and {arms}: "
                "play such games, or train it on these"
            )
