"""Policies on recorded games: what they would have done at every step, given what was done before.

All candidates are judged on the same histories. Environments are played by several behaviours, a
share of the games each, so that every action is seen after good and bad luck; games that come
recorded stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.policies.base import Policy
from innerloop.policies.empirical_average import EmpiricalAveragePolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.rollout import rollout
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.bandit import ActionSet, Bandit
from innerloop.problems.base import Distribution
from innerloop.problems.bernoulli_bandits import BernoulliBandit
from innerloop.problems.environment import Environment
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.linear_bandits import LinearBandit
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.problems.problem import Problem
from innerloop.problems.tabular_games import TabularGameProblem

GameProblem = BanditGameProblem | TabularGameProblem
BANDIT_STEPS, EPISODES = 12, 4
"""Length of the games that are played where the environments do not say."""


@dataclass(frozen=True)
class History:
    """A game so far, as a policy sees it: batch first, then steps.

    A bandit shows `features` (batch, t + 1, actions, d), the current action set last; a decision
    process shows `states` (batch, t + 1) and `horizon`. `actions` and `rewards` (batch, t) are of
    the steps before. `noise` (batch, normals) is for policies that sample.
    """

    actions: Tensor
    rewards: Tensor
    noise: Tensor
    features: Tensor | None = None
    states: Tensor | None = None
    horizon: int | None = None

    @property
    def step(self) -> int:
        """Number of steps done."""
        return self.actions.shape[-1]


def draw_instances(distribution: Distribution, count: int, generator: torch.Generator) -> Any:
    """Draw instances; environments are played by several behaviours."""
    sample = distribution.sample(count, generator=generator)
    return play_behaviours(sample, generator) if isinstance(sample, Environment) else sample


def play_behaviours(environment: Environment, generator: torch.Generator) -> GameProblem:
    """Play every environment of a batch by one of several behaviours, in turn."""
    count = environment.batch[0]
    if isinstance(environment, TabularMDP):
        players: list[Policy[Any, Any]] = [UniformPolicy(), UCBVIPolicy(bonus=0.05)]
        players.append(UCBVIPolicy(bonus=0.02, temperature=0.2))
        steps = EPISODES * environment.horizon
    else:
        assert isinstance(environment, Bandit)
        steps = (
            environment.sets if environment.sets > 1 else max(BANDIT_STEPS, environment.actions + 8)
        )
        players = [UniformPolicy(), LinUCBPolicy(), LinUCBPolicy(alpha=0.0, temperature=0.3)]
        if environment.sets == 1:
            players.append(EmpiricalAveragePolicy(epsilon=0.3))
    players, parts = players[:count], []
    for k, player in enumerate(players):
        some = environment[slice(k * count // len(players), (k + 1) * count // len(players))]
        parts.append(rollout(player, some, steps, generator).history)
    # Shuffled: the first games of a batch are by all behaviours, too.
    order = torch.randperm(count, generator=generator)
    first, actions, rewards = (torch.cat(each)[order] for each in zip(*parts, strict=True))
    if isinstance(environment, TabularMDP):
        sizes = environment.states, environment.actions
        return TabularGameProblem(first, actions, rewards, sizes)
    features = first
    noise = torch.randn(*features[..., 0, :].shape, generator=generator, dtype=torch.float64)
    return BanditGameProblem(features, actions, rewards, noise.to(features))


def restore_environment(problem: GameProblem) -> Environment:
    """Return an environment with the shape and the features of recorded games.

    Its rewards and transitions are placeholders, because recorded games do not contain them.
    """
    if isinstance(problem, TabularGameProblem):
        states, actions = problem.sizes
        shape = (*problem.batch, problem.horizon, states, actions)
        rewards = problem.rewards.new_zeros(shape)
        moves = rewards.new_full((*shape, states), 1 / states)
        return TabularMDP(moves, rewards, moves[..., 0, 0, 0, :])
    features = problem.features
    unit = torch.eye(problem.arms, problem.d).to(features)
    if problem.arms == problem.d and bool((features == unit).all()):
        return BernoulliBandit(features.new_full((*problem.batch, problem.arms), 0.5))
    if bool((features == features[..., :1, :, :]).all()):
        features = features[..., :1, :, :]
    return LinearBandit(features, features.new_zeros(*problem.batch, problem.d))


@dataclass(frozen=True, eq=False)
class PlayedPolicy(Algorithm[Any, Tensor]):
    """A policy as a candidate: log odds at every step of recorded games."""

    source: ClassVar[str] = "the policy's"
    problem_type: ClassVar = Problem
    has_steps: ClassVar[bool] = False
    policy: Policy[Any, Any]

    def init(self, problem: GameProblem) -> Float[Tensor, "*batch steps actions"]:
        environment = restore_environment(problem)
        self.policy.check_environment(environment)
        normals = self.policy.count_normals(environment)
        state, rows = self.policy.init_state(environment), []
        for observation, action, reward, noise in list_steps(problem):
            if normals not in (0, noise.shape[-1]):
                raise InputError(f"{self.policy.name} needs {normals} normals a step")
            draws = noise if normals else noise[..., :0]
            rows.append(self.policy.log_probabilities(state, observation, draws))
            state = self.policy.update(state, observation, action, reward)
        return torch.stack(rows, dim=-2)

    def step(self, problem: GameProblem, state: Tensor, k: int) -> Tensor:
        return state

    def predict(self, problem: GameProblem, state: Tensor) -> Tensor:
        return state

    def with_numbers(self, **numbers: float) -> PlayedPolicy:
        """Return a copy with these parameters replaced."""
        return PlayedPolicy(replace(self.policy, **numbers))


def list_steps(problem: GameProblem) -> list[tuple[Any, Tensor, Tensor, Tensor]]:
    """List observation, action, reward and normals of every step of recorded games."""
    if isinstance(problem, TabularGameProblem):
        none = problem.rewards.new_zeros(*problem.batch, 0)
        return [
            (
                Situation(h, problem.states[..., e, h]),
                problem.actions[..., e, h],
                problem.rewards[..., e, h],
                none,
            )
            for e in range(problem.episodes)
            for h in range(problem.horizon)
        ]
    return [
        (
            ActionSet(t, problem.features[..., t, :, :]),
            problem.actions[..., t],
            problem.rewards[..., t],
            problem.noise[..., t, :],
        )
        for t in range(problem.n)
    ]


def ask_policy(policy: Callable[[History], Any], problem: GameProblem) -> list[Any]:
    """Return the odds that a function gives at every step of recorded games."""
    if isinstance(problem, TabularGameProblem):
        states, actions, rewards = (
            each.flatten(-2) for each in (problem.states, problem.actions, problem.rewards)
        )
        none = rewards.new_zeros(*problem.batch, 0)
        return [
            policy(
                History(
                    actions[..., :t].clone(),
                    rewards[..., :t].clone(),
                    none,
                    states=states[..., : t + 1].clone(),
                    horizon=problem.horizon,
                )
            )
            for t in range(actions.shape[-1])
        ]
    return [
        policy(
            History(
                problem.actions[..., :t].clone(),
                problem.rewards[..., :t].clone(),
                problem.noise[..., t, :].clone(),
                features=problem.features[..., : t + 1, :, :].clone(),
            )
        )
        for t in range(problem.n)
    ]
