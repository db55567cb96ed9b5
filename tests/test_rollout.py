"""Games: batches against single environments, common random numbers, growth of regret."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from worlds import STEPS, WORLDS, make_generator

from innerloop.errors import InputError, OutOfRangeError
from innerloop.policies.base import Policy
from innerloop.policies.bernoulli_thompson import BernoulliThompsonPolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.linear_thompson import LinearThompsonPolicy
from innerloop.policies.optimal import OptimalPolicy
from innerloop.policies.rollout import rollout
from innerloop.policies.ucb import UCBPolicy
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.bandit import ActionSet
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.environment import Environment
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.registry import load_members
from innerloop.testing.policies import check_play

POLICIES: dict[str, Any] = load_members("policies", Policy)


def list_pairings() -> list[tuple[str, str]]:
    """List the names of every policy with every world that it accepts."""
    pairs = []
    for name, world in itertools.product(POLICIES, WORLDS):
        try:
            POLICIES[name]().check_environment(WORLDS[world].sample())
        except OutOfRangeError:
            continue
        pairs.append((name, world))
    return pairs


PAIRINGS = list_pairings()


def test_every_policy_plays_somewhere() -> None:
    assert set(POLICIES) == {name for name, _ in PAIRINGS}


@pytest.mark.parametrize(("name", "world"), PAIRINGS)
def test_every_policy_satisfies_the_contract_of_policies(name: str, world: str) -> None:
    """`check_play` covers batches, repetition, shorter games and float32; seeds change rewards."""
    environment = WORLDS[world].sample(3, generator=make_generator())
    check_play(POLICIES[name](), environment, STEPS)
    pairs = WORLDS[world].sample(2, 2, generator=make_generator())
    one, other = (rollout(POLICIES[name](), pairs, STEPS, seed) for seed in (5, 6))
    assert not torch.equal(one.history.rewards, other.history.rewards)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnusedNoisePolicy(UniformPolicy):
    """Chooses like `UniformPolicy`, but requests noise that it does not use."""

    source: ClassVar[str] = "a test"

    def count_normals(self, environment: Environment) -> int:
        return 3


@pytest.mark.parametrize("world", WORLDS)
def test_policies_with_equal_choices_play_equal_games(world: str) -> None:
    environment = WORLDS[world].sample(4, generator=make_generator())
    generators = make_generator(2), make_generator(2)
    policies = UniformPolicy(), UnusedNoisePolicy()
    without_noise, with_noise = (
        rollout(policy, environment, STEPS, generator)
        for policy, generator in zip(policies, generators, strict=True)
    )
    for a, b in zip(without_noise.history, with_noise.history, strict=True):
        assert torch.equal(a, b)
    after = [torch.rand(3, generator=generator) for generator in generators]
    assert torch.equal(*after), "the caller's generator has moved by the same amount"


def test_policies_with_different_choices_meet_the_same_noise() -> None:
    environment = LinearBandits(noise=2.0).sample(6, generator=make_generator())
    residuals = []
    for policy in (UniformPolicy(), OptimalPolicy(), LinUCBPolicy()):
        game = rollout(policy, environment, STEPS, 3)
        means = environment.means.expand(6, STEPS, -1)
        chosen_means = means.gather(-1, game.history.actions.unsqueeze(-1)).squeeze(-1)
        residuals.append(game.history.rewards - chosen_means)
    torch.testing.assert_close(residuals[0], residuals[1], rtol=0, atol=1e-13)
    torch.testing.assert_close(residuals[0], residuals[2], rtol=0, atol=1e-13)


@pytest.mark.parametrize("world", WORLDS)
def test_the_optimal_policy_has_no_regret_and_others_have(world: str) -> None:
    environment = WORLDS[world].sample(2, 5, generator=make_generator())
    best, worse = (
        rollout(policy, environment, STEPS, 1) for policy in (OptimalPolicy(), UniformPolicy())
    )
    torch.testing.assert_close(best.regret, torch.zeros_like(best.regret), rtol=0, atol=1e-14)
    assert bool((worse.regret > -1e-14).all())
    assert float(worse.regret.mean()) > 0.01


def test_regret_is_the_mean_shortfall_of_rewards() -> None:
    environment = TabularMDPs(states=3, arms=2, horizon=4).sample(generator=make_generator())
    many = replace(
        environment,
        transitions=environment.transitions.expand(20_000, -1, -1, -1, -1),
        rewards=environment.rewards.expand(20_000, -1, -1, -1),
        initial=environment.initial.expand(20_000, -1),
    )
    game = rollout(UniformPolicy(), many, 4, 1)
    earned = game.history.rewards.sum(dim=-1).mean()
    assert float(many.value()[0] - earned) == pytest.approx(float(game.regret[0, 0]), abs=0.02)


def fit_exponent(regret: torch.Tensor) -> float:
    """Fit the slope of log cumulative regret against log time over the last decade of steps."""
    total = regret.mean(dim=0).cumsum(dim=0).numpy()
    times = np.arange(1, len(total) + 1)
    last = slice(len(total) // 10, None)
    return float(np.polyfit(np.log(times[last]), np.log(total[last]), 1)[0])


@pytest.mark.parametrize("sets", [1, 1000])
def test_regret_grows_slowly_with_learning_and_linearly_without(sets: int) -> None:
    distribution = LinearBandits(d=3, arms=5, noise=0.5, sets=sets)
    environment = distribution.sample(60, generator=make_generator())
    for policy in (LinUCBPolicy(alpha=1.0), LinearThompsonPolicy(scale=0.5)):
        assert fit_exponent(rollout(policy, environment, 1000, 1).regret) < 0.6
    assert fit_exponent(rollout(UniformPolicy(), environment, 1000, 1).regret) == pytest.approx(
        1, abs=0.02
    )


def test_bernoulli_regret_grows_slowly_with_learning() -> None:
    environment = BernoulliBandits(arms=4).sample(60, generator=make_generator())
    for policy in (UCBPolicy(width=0.5), BernoulliThompsonPolicy()):
        assert fit_exponent(rollout(policy, environment, 1000, 1).regret) < 0.6
    assert fit_exponent(rollout(UniformPolicy(), environment, 1000, 1).regret) > 0.98


@pytest.mark.parametrize(("name", "world"), [pair for pair in PAIRINGS if pair[1] == "tabular"])
def test_a_plan_holds_the_policys_probabilities_at_every_state(name: str, world: str) -> None:
    policy, environment = POLICIES[name](), WORLDS[world].sample(3, generator=make_generator())
    noise = torch.zeros(3, policy.count_normals(environment)).double()
    state = policy.init_state(environment)
    generic = Policy.plan(policy, state, environment, noise)
    assert generic.shape == (3, 4, 3, 2)
    assert torch.equal(policy.plan(state, environment, noise), generic)


@pytest.mark.parametrize(
    ("policy", "world", "steps", "message"),
    [
        (LinUCBPolicy(), "tabular", 4, "lin-ucb expects an environment of type Bandit, got Tab"),
        (UCBVIPolicy(), "fixed", 4, "ucb-vi expects .* of type TabularMDP, got LinearBandit"),
        (BernoulliThompsonPolicy(), "fixed", 4, "an environment of type BernoulliBandit"),
        (UCBPolicy(), "changing", 4, "same actions at every step, got 24 sets"),
        (LinUCBPolicy(), "changing", 25, "expected at most 24 steps, .* got 25"),
        (UniformPolicy(), "tabular", 5, "whole episodes of 4"),
        (UniformPolicy(), "fixed", 0, "at least 1"),
    ],
)
def test_games_that_cannot_be_played_are_refused(
    policy, world: str, steps: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        rollout(policy, WORLDS[world].sample(2), steps, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaledPolicy(UniformPolicy):
    """A policy whose probabilities are scaled and do not sum to 1."""

    source: ClassVar[str] = "a test"
    scale: float = 1.0

    def probabilities(self, state, observation: ActionSet, noise):
        return state * self.scale


@pytest.mark.parametrize("scale", [0.9, -1.0, math.nan, math.inf, 0.0])
def test_invalid_probabilities_are_refused(scale: float) -> None:
    policy = ScaledPolicy()
    object.__setattr__(policy, "scale", scale)
    with pytest.raises(InputError, match=r"the probabilities of .* must"):
        rollout(policy, WORLDS["fixed"].sample(2), 5, 0)


@pytest.mark.parametrize("seed", [-1, 2**32, True])
def test_invalid_seeds_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match="seed must be"):
        rollout(UniformPolicy(), WORLDS["fixed"].sample(2), 5, seed)
