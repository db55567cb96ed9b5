"""Games: a batch next to its environments, common random numbers, and how regret grows."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from worlds import STEPS, WORLDS, seeded

from innerloop.errors import InputError, OutOfRange
from innerloop.policies.base import Policy
from innerloop.policies.bernoulli_thompson import BernoulliThompson
from innerloop.policies.lin_ucb import LinUCB
from innerloop.policies.linear_thompson import LinearThompson
from innerloop.policies.optimal import Optimal
from innerloop.policies.rollout import Draws, play, rollout
from innerloop.policies.ucb import UCB
from innerloop.policies.ucb_vi import UCBVI
from innerloop.policies.uniform import Uniform
from innerloop.problems.bandit import ActionSet
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.environment import Environment
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.registry import members

POLICIES: dict[str, Any] = members("policies", Policy)


def pairings() -> list[tuple[str, str]]:
    """Every policy in every world that it accepts."""
    found = []
    for name, world in itertools.product(POLICIES, WORLDS):
        try:
            POLICIES[name]().accept(WORLDS[world].sample())
        except OutOfRange:
            continue
        found.append((name, world))
    return found


PAIRINGS = pairings()


def test_every_policy_plays_somewhere() -> None:
    assert set(POLICIES) == {name for name, _ in PAIRINGS}


@pytest.mark.parametrize(("name", "world"), PAIRINGS)
def test_a_batch_is_its_environments_one_by_one(name: str, world: str) -> None:
    policy, environment = POLICIES[name](), WORLDS[world].sample(3, generator=seeded())
    draws = Draws.of(policy, environment, STEPS, 1)
    together = play(policy, environment, draws)
    for k in range(3):
        alone = play(policy, environment[k], draws.at(k))
        assert torch.equal(alone.history.actions, together.history.actions[k])
        for a, b in zip(alone[1:], together[1:], strict=True):
            torch.testing.assert_close(a, b[k], rtol=0, atol=1e-12)
        torch.testing.assert_close(
            alone.history.rewards, together.history.rewards[k], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize(("name", "world"), PAIRINGS)
def test_the_same_seed_is_the_same_game_and_more_steps_only_add(name: str, world: str) -> None:
    policy, environment = POLICIES[name](), WORLDS[world].sample(2, 2, generator=seeded())
    first = rollout(policy, environment, STEPS, 5)
    again = rollout(policy, environment, STEPS, seeded(5))
    short = rollout(policy, environment, STEPS // 2, 5)
    other = rollout(policy, environment, STEPS, 6)
    for a, b in zip(first.history, again.history, strict=True):
        assert torch.equal(a, b)
    size = short.regret.shape[-1]
    for a, b in zip(first.history.prefix(size), short.history, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(first.regret[..., :size], short.regret)
    assert not torch.equal(first.history.rewards, other.history.rewards)
    single = rollout(policy, environment.to(torch.float32), STEPS, 5)
    assert single.history.rewards.dtype == single.regret.dtype == torch.float32


@dataclass(frozen=True, kw_only=True, eq=False)
class Restless(Uniform):
    """Chooses as `Uniform` does, but asks for noise."""

    source: ClassVar[str] = "a test"

    def normals(self, environment: Environment) -> int:
        return 3


@pytest.mark.parametrize("world", WORLDS)
def test_policies_that_choose_equally_see_the_same(world: str) -> None:
    environment = WORLDS[world].sample(4, generator=seeded())
    generators = seeded(2), seeded(2)
    quiet, loud = (
        rollout(policy, environment, STEPS, generator)
        for policy, generator in zip((Uniform(), Restless()), generators, strict=True)
    )
    for a, b in zip(quiet.history, loud.history, strict=True):
        assert torch.equal(a, b)
    after = [torch.rand(3, generator=generator) for generator in generators]
    assert torch.equal(*after), "the caller's generator has moved by the same amount"


def test_different_choices_still_meet_the_same_luck() -> None:
    environment = LinearBandits(noise=2.0).sample(6, generator=seeded())
    residuals = []
    for policy in (Uniform(), Optimal(), LinUCB()):
        game = rollout(policy, environment, STEPS, 3)
        means = environment.means.expand(6, STEPS, -1)
        chosen = means.gather(-1, game.history.actions.unsqueeze(-1)).squeeze(-1)
        residuals.append(game.history.rewards - chosen)
    torch.testing.assert_close(residuals[0], residuals[1], rtol=0, atol=1e-13)
    torch.testing.assert_close(residuals[0], residuals[2], rtol=0, atol=1e-13)


@pytest.mark.parametrize("world", WORLDS)
def test_the_optimal_policy_has_no_regret_and_others_have(world: str) -> None:
    environment = WORLDS[world].sample(2, 5, generator=seeded())
    best, worse = (rollout(policy, environment, STEPS, 1) for policy in (Optimal(), Uniform()))
    torch.testing.assert_close(best.regret, torch.zeros_like(best.regret), rtol=0, atol=1e-14)
    assert bool((worse.regret > -1e-14).all())
    assert float(worse.regret.mean()) > 0.01


def test_regret_is_what_rewards_fall_short_by_on_average() -> None:
    environment = TabularMDPs(states=3, arms=2, horizon=4).sample(generator=seeded())
    many = replace(
        environment,
        transitions=environment.transitions.expand(20_000, -1, -1, -1, -1),
        rewards=environment.rewards.expand(20_000, -1, -1, -1),
        initial=environment.initial.expand(20_000, -1),
    )
    game = rollout(Uniform(), many, 4, 1)
    earned = game.history.rewards.sum(dim=-1).mean()
    assert float(many.value()[0] - earned) == pytest.approx(float(game.regret[0, 0]), abs=0.02)


def exponent(regret: torch.Tensor) -> float:
    """The slope of log cumulative regret against log time over the last decade."""
    total = regret.mean(dim=0).cumsum(dim=0).numpy()
    times = np.arange(1, len(total) + 1)
    last = slice(len(total) // 10, None)
    return float(np.polyfit(np.log(times[last]), np.log(total[last]), 1)[0])


@pytest.mark.parametrize("sets", [1, 1000])
def test_regret_grows_slowly_with_learning_and_linearly_without(sets: int) -> None:
    distribution = LinearBandits(d=3, arms=5, noise=0.5, sets=sets)
    environment = distribution.sample(60, generator=seeded())
    for policy in (LinUCB(alpha=1.0), LinearThompson(scale=0.5)):
        assert exponent(rollout(policy, environment, 1000, 1).regret) < 0.6
    assert exponent(rollout(Uniform(), environment, 1000, 1).regret) == pytest.approx(1, abs=0.02)


def test_bernoulli_regret_grows_slowly_with_learning() -> None:
    environment = BernoulliBandits(arms=4).sample(60, generator=seeded())
    for policy in (UCB(width=0.5), BernoulliThompson()):
        assert exponent(rollout(policy, environment, 1000, 1).regret) < 0.6
    assert exponent(rollout(Uniform(), environment, 1000, 1).regret) > 0.98


@pytest.mark.parametrize(("name", "world"), [pair for pair in PAIRINGS if pair[1] == "tabular"])
def test_a_plan_is_what_the_policy_does_at_every_state(name: str, world: str) -> None:
    policy, environment = POLICIES[name](), WORLDS[world].sample(3, generator=seeded())
    noise = torch.zeros(3, policy.normals(environment)).double()
    state = policy.start(environment)
    generic = Policy.plan(policy, state, environment, noise)
    assert generic.shape == (3, 4, 3, 2)
    assert torch.equal(policy.plan(state, environment, noise), generic)


@pytest.mark.parametrize(
    ("policy", "world", "steps", "says"),
    [
        (LinUCB(), "tabular", 4, "lin-ucb plays in a Bandit, got a TabularMDP"),
        (UCBVI(), "fixed", 4, "ucb-vi plays in a TabularMDP, got a LinearBandit"),
        (BernoulliThompson(), "fixed", 4, "plays in a BernoulliBandit"),
        (UCB(), "changing", 4, "same actions at every step, got 24 sets"),
        (LinUCB(), "changing", 25, "action sets for 24 steps, got 25"),
        (Uniform(), "tabular", 5, "whole episodes of 4"),
        (Uniform(), "fixed", 0, "at least 1"),
    ],
)
def test_games_that_cannot_be_played(policy, world: str, steps: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        rollout(policy, WORLDS[world].sample(2), steps, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Broken(Uniform):
    """A policy whose odds are scaled, and so none."""

    source: ClassVar[str] = "a test"
    scale: float = 1.0

    def probabilities(self, state, observation: ActionSet, noise):
        return state * self.scale


@pytest.mark.parametrize("scale", [0.9, -1.0, math.nan, math.inf, 0.0])
def test_odds_that_are_none_are_refused(scale: float) -> None:
    broken = Broken()
    object.__setattr__(broken, "scale", scale)
    with pytest.raises(InputError, match=r"the odds of .* must"):
        rollout(broken, WORLDS["fixed"].sample(2), 5, 0)


@pytest.mark.parametrize("seed", [-1, 2**63, True])
def test_seeds_that_are_none_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match="a seed from 0, got"):
        rollout(Uniform(), WORLDS["fixed"].sample(2), 5, seed)
