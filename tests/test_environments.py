"""Environments: what they draw, show and pay, what a decision process is worth, what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from worlds import seeded

from innerloop.errors import InputError, OutOfRange
from innerloop.problems.base import Distribution
from innerloop.problems.bernoulli_bandits import BernoulliBandit, BernoulliBandits
from innerloop.problems.environment import Environment, check_probabilities, choose
from innerloop.problems.linear_bandits import LinearBandit, LinearBandits
from innerloop.problems.mdp import TabularMDP, dynamic_programming
from innerloop.problems.river_swim import RiverSwim
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.registry import members

KINDS = [LinearBandits, BernoulliBandits, TabularMDPs, RiverSwim]
CASES = [(kind, case) for kind in KINDS for case in kind.cases]


def unchecked(kind: type, **values: object) -> Any:
    """An object whose shapes the annotations have not seen: users run without them."""
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_every_case_is_drawn_in_any_batch(kind, case: dict, batch: tuple) -> None:
    environment = kind.made(case).sample(*batch, generator=seeded())
    assert environment.batch == batch
    again, single = (
        kind.made(case).sample(*batch, generator=seeded(), dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    assert torch.equal(environment.like, again.like)
    assert torch.equal(environment.to(torch.float32).like, single.like)
    assert single.like.dtype == torch.float32


def test_the_registry_finds_the_environments() -> None:
    found = members("problems", Distribution)
    assert {"linear-bandits", "bernoulli-bandits", "tabular-mdps", "river-swim"} <= set(found)


def test_some_of_a_batch() -> None:
    bandit = LinearBandits(d=2, arms=3).sample(4, 5, generator=seeded())
    assert torch.equal(bandit[2].features, bandit.features[2])
    assert torch.equal(bandit[1, 3].weights, bandit.weights[1, 3])
    assert bandit[1:3].batch == (2, 5)
    with pytest.raises(InputError, match="no environment 7 in a batch of"):
        bandit[7]
    with pytest.raises(InputError, match="3 indices"):
        bandit[0, 0, 0]


def test_linear_bandits_are_drawn_as_asked() -> None:
    bandit = LinearBandits(d=4, arms=3, bound=2.0).sample(20_000, generator=seeded())
    assert float(bandit.features.norm(dim=-1).max()) <= 2.0
    assert stats.kstest(bandit.features.flatten().numpy(), "uniform", (-1.0, 2.0)).pvalue > 0.01
    assert stats.kstest(bandit.weights.flatten().numpy(), "norm", (0.0, 0.5)).pvalue > 0.01
    uniform = LinearBandits(d=4, prior="uniform").sample(5_000, generator=seeded())
    assert stats.kstest(uniform.weights.flatten().numpy(), "uniform").pvalue > 0.01
    assert float(uniform.features.abs().max()) <= 1.0
    given = LinearBandits(d=2, prior=torch.tensor([1.0, -2.0])).sample(3)
    assert given.weights.tolist() == [[1.0, -2.0]] * 3


def test_linear_rewards_are_linear_up_to_their_noise() -> None:
    bandit = LinearBandits(d=3, arms=4, sets=2, noise=0.7).sample(50_000, generator=seeded())
    luck = bandit.luck(seeded(1))
    action = torch.randint(4, (50_000,), generator=seeded(2))
    for t in range(2):
        observation = bandit.observe(t, luck, None)
        assert torch.equal(observation.features, bandit.features[:, t])
        reward = bandit.reward(observation, action, luck).numpy()
        rows = bandit.features[torch.arange(50_000), t, action].numpy()
        residual = reward - (rows * bandit.weights.numpy()).sum(-1)
        assert stats.kstest(residual, "norm", (0.0, 0.7)).pvalue > 0.01
        np.testing.assert_allclose(
            bandit.action_values(observation).numpy(),
            np.einsum("bad,bd->ba", bandit.features[:, t], bandit.weights),
            atol=1e-14,
        )


def test_bernoulli_rewards_have_their_chances() -> None:
    drawn = BernoulliBandits(arms=2).sample(20_000, generator=seeded()).chances
    assert stats.kstest(drawn.flatten().numpy(), "beta", (1, 1)).pvalue > 0.01
    chances = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    bandit = BernoulliBandits(arms=3, chances=chances).sample(40_000)
    observation = bandit.observe(0, luck := bandit.luck(seeded()), None)
    assert torch.equal(observation.features[7], torch.eye(3, dtype=torch.float64))
    for arm, chance in enumerate(chances):
        reward = bandit.reward(observation, torch.full((40_000,), arm), luck)
        assert set(reward.unique().tolist()) <= {0.0, 1.0}
        assert float(reward.mean()) == pytest.approx(float(chance), abs=0.01)


def test_transitions_are_flat_on_the_simplex() -> None:
    mdp = TabularMDPs(states=3, arms=2, horizon=2).sample(5_000, generator=seeded())
    # A coordinate of a flat Dirichlet vector of length S is Beta(1, S − 1).
    assert stats.kstest(mdp.transitions[..., 0].flatten().numpy(), "beta", (1, 2)).pvalue > 0.01
    assert stats.kstest(mdp.rewards.flatten().numpy(), "uniform").pvalue > 0.01


def test_moves_follow_the_transitions() -> None:
    mdp = TabularMDPs(states=3, arms=2, horizon=2).sample(generator=seeded())
    many = TabularMDP(
        *(x.expand(60_000, *x.shape) for x in (mdp.transitions, mdp.rewards, mdp.initial))
    )
    first = many.observe(0, many.luck(seeded(1)), None)
    assert first.step == 0
    np.testing.assert_allclose(first.state.bincount().numpy() / 60_000, mdp.initial, atol=0.01)
    action = torch.randint(2, (60_000,), generator=seeded(2))
    second = many.observe(1, many.luck(seeded(3)), (first, action))
    assert second.step == 1
    for s, a in itertools.product(range(3), range(2)):
        here = (first.state == s) & (action == a)
        odds = second.state[here].bincount(minlength=3) / here.sum()
        np.testing.assert_allclose(odds.numpy(), mdp.transitions[0, s, a], atol=0.02)
        earned = many.reward(first, action, many.luck(seeded(4)))[here]
        assert earned.unique().tolist() == [float(mdp.rewards[0, s, a])]


def brute_force(mdp: TabularMDP, plan: tuple[tuple[int, ...], ...]) -> float:
    """The value of a deterministic plan, by adding up every path's probability times reward."""
    total = 0.0
    for path in itertools.product(range(mdp.states), repeat=mdp.horizon):
        odds, earned = float(mdp.initial[path[0]]), 0.0
        for h, s in enumerate(path):
            earned += float(mdp.rewards[h, s, plan[h][s]])
            if h + 1 < mdp.horizon:
                odds *= float(mdp.transitions[h, s, plan[h][s], path[h + 1]])
        total += odds * earned
    return total


def test_values_are_those_of_the_best_of_all_plans() -> None:
    mdp = TabularMDPs(states=2, arms=3, horizon=3).sample(generator=seeded(5))
    rows = list(itertools.product(range(3), repeat=2))
    values = {plan: brute_force(mdp, plan) for plan in itertools.product(rows, repeat=3)}
    assert float(mdp.value()) == pytest.approx(max(values.values()), abs=1e-12)
    for plan in list(values)[::100]:
        table = torch.nn.functional.one_hot(torch.tensor(plan), 3).double()
        assert float(mdp.value(table)) == pytest.approx(values[plan], abs=1e-12)
    # A plan that mixes two others at the first step is worth the same mixture.
    two = [((0, 0), *rows[:2]), ((2, 2), *rows[:2])]
    mixed = torch.nn.functional.one_hot(torch.tensor(two), 3).double().mean(dim=0)
    average = (values[two[0]] + values[two[1]]) / 2
    assert float(mdp.value(mixed)) == pytest.approx(average, abs=1e-12)


def test_dynamic_programming_is_batched_and_clipped() -> None:
    mdp = TabularMDPs(states=3, arms=2, horizon=4).sample(2, 3, generator=seeded())
    together = dynamic_programming(mdp.rewards, mdp.transitions, most=1.3)
    for i, j in np.ndindex(2, 3):
        one = mdp[i, j]
        value = np.zeros(3)
        for h in reversed(range(4)):
            q = np.zeros((3, 2))
            for s, a in np.ndindex(3, 2):
                q[s, a] = min(
                    1.3, float(one.rewards[h, s, a]) + one.transitions[h, s, a].numpy() @ value
                )
            np.testing.assert_allclose(together[i, j, h].numpy(), q, atol=1e-14)
            value = q.max(axis=1)


def test_river_swim_by_hand() -> None:
    """Three places. In two steps nothing beats the left bank; in three the swim does."""
    two = RiverSwim(states=3, horizon=2).sample()
    assert float(two.value()) == pytest.approx(0.01, abs=1e-15)
    three = RiverSwim(states=3, horizon=3).sample()
    # Right, and then: washed back, the left bank twice; in the middle, right once more.
    middle = 0.05 * 0.005 + 0.35 * 1.0
    assert float(three.value()) == pytest.approx(0.4 * 0.01 + 0.6 * middle, abs=1e-15)
    right = torch.zeros(3, 3, 2, dtype=torch.float64)
    right[..., 1] = 1.0
    assert float(three.value(right)) == pytest.approx(0.6 * 0.35, abs=1e-15)


def test_river_swim_by_value_iteration_in_plain_loops() -> None:
    n, horizon = 6, 20
    river = RiverSwim(states=n, horizon=horizon).sample(2)
    value = [0.0] * n
    for _ in range(horizon):
        left = [(0.005 if s == 0 else 0.0) + value[max(s - 1, 0)] for s in range(n)]
        right = [0.4 * value[0] + 0.6 * value[1]]
        for s in range(1, n - 1):
            right.append(0.05 * value[s - 1] + 0.6 * value[s] + 0.35 * value[s + 1])
        right.append(1.0 + 0.6 * value[n - 1] + 0.4 * value[n - 2])
        value = [max(pair) for pair in zip(left, right, strict=True)]
    np.testing.assert_allclose(river.value().numpy(), value[0], rtol=1e-13)


def test_choices_have_their_odds_and_impossible_ones_are_never_made() -> None:
    odds = torch.tensor([0.2, 0.0, 0.5, 0.3, 0.0], dtype=torch.float64)
    lots = torch.rand(50_000, generator=seeded(), dtype=torch.float64)
    chosen = choose(odds.expand(50_000, 5), lots)
    np.testing.assert_allclose(chosen.bincount(minlength=5).numpy() / 50_000, odds, atol=0.01)
    extremes = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert choose(odds.expand(2, 5), extremes).tolist() == [0, 3]
    first_is_nought = torch.tensor([[0.0, 0.7, 0.3, 0.0]] * 2)
    assert choose(first_is_nought, extremes).tolist() == [1, 2], "single precision, double lots"


@pytest.mark.parametrize(
    ("kind", "setting", "says"),
    [
        (LinearBandits, {"arms": 0}, "arms must be at least 1"),
        (LinearBandits, {"d": 0}, "d must be at least 1"),
        (LinearBandits, {"noise": -0.1}, "noise must be at least 0"),
        (LinearBandits, {"bound": 0.0}, "bound must be at least"),
        (LinearBandits, {"prior": "normel"}, "'normal' or 'uniform'"),
        (LinearBandits, {"d": 3, "prior": [1.0, 2.0]}, "3 weights"),
        (BernoulliBandits, {"arms": 0}, "arms must be at least 1"),
        (BernoulliBandits, {"arms": 2, "chances": [0.5]}, "2 numbers"),
        (BernoulliBandits, {"arms": 2, "chances": [0.5, 1.5]}, r"\[0, 1\], got 0.5 … 1.5"),
        (TabularMDPs, {"states": 0}, "states must be at least 1"),
        (TabularMDPs, {"horizon": 0}, "horizon must be at least 1"),
        (RiverSwim, {"states": 1}, "states must be at least 2"),
    ],
)
def test_bad_settings_are_named(kind, setting: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        kind.made(setting)


ONES = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        (LinearBandit, {"features": ONES, "weights": torch.ones(3)}, "expected features"),
        (LinearBandit, {"features": ONES[0], "weights": torch.ones(4)}, "expected features"),
        (LinearBandit, {"features": ONES[:, :0], "weights": torch.ones(4)}, "at least one action"),
        (LinearBandit, {"features": 0 * ONES, "weights": torch.ones(4)}, "all 0 teaches nothing"),
        (LinearBandit, {"features": ONES * torch.nan, "weights": torch.ones(4)}, "finite"),
        (LinearBandit, {"features": ONES, "weights": torch.ones(4).double()}, "convert one"),
        (LinearBandit, {"features": [[[1.0]]], "weights": torch.ones(4)}, "must be a tensor"),
        (LinearBandit, {"features": ONES, "weights": torch.ones(4), "noise": -1.0}, "noise must"),
        (LinearBandit, {"features": ONES * 1e30, "weights": torch.ones(4) * 1e30}, "scale"),
        (BernoulliBandit, {"chances": torch.tensor([0.5, -0.1])}, "must lie in"),
        (BernoulliBandit, {"chances": torch.ones(2, 0)}, "at least one arm"),
        (BernoulliBandit, {"chances": torch.ones(2).long()}, "floating-point"),
    ],
)
def test_bad_bandits_are_named(kind, values: dict, says: str) -> None:
    made = unchecked(kind, **{"noise": 1.0, **values})
    with pytest.raises(InputError, match=says):
        made.__post_init__()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"transitions": torch.full((2, 3, 2, 3), 0.5)}, "transitions must sum to 1, .*normalise"),
        ({"transitions": torch.tensor([1.5, -0.5, 0.0]).expand(2, 3, 2, 3)}, "not be negative"),
        ({"initial": torch.tensor([0.5, 0.2, 0.2])}, "initial must sum to 1"),
        ({"rewards": torch.full((2, 3, 2), 1.1)}, r"rewards must lie in \[0, 1\]"),
        ({"rewards": torch.ones(2, 3, 5)}, "expected transitions"),
        ({"initial": torch.ones(4) / 4}, "expected transitions"),
        ({"rewards": torch.full((2, 3, 2), torch.nan)}, "rewards must be finite"),
    ],
)
def test_bad_decision_processes_are_named(change: dict, says: str) -> None:
    good = {
        "transitions": torch.full((2, 3, 2, 3), 1 / 3),
        "rewards": torch.ones(2, 3, 2),
        "initial": torch.ones(3) / 3,
    }
    unchecked(TabularMDP, **good).__post_init__()
    with pytest.raises(InputError, match=says):
        unchecked(TabularMDP, **{**good, **change}).__post_init__()


@pytest.mark.parametrize(
    ("environment", "steps", "error", "says"),
    [
        (LinearBandits(sets=5).sample(), 6, OutOfRange, "action sets for 5 steps, got 6"),
        (LinearBandits().sample(), 0, InputError, "at least 1, got 0"),
        (LinearBandits().sample(), True, InputError, "whole number"),
        (LinearBandits().sample(), 10**9, OutOfRange, "at most"),
        (RiverSwim(horizon=4).sample(), 6, InputError, "whole episodes of 4, got 6"),
    ],
)
def test_steps_that_cannot_be_played(environment: Environment, steps: int, error, says) -> None:
    with pytest.raises(error, match=says):
        environment.check_steps(steps)


def test_odds_that_are_none() -> None:
    with pytest.raises(InputError, match=r"sums that are 0\.1 away"):
        check_probabilities("odds", torch.tensor([0.5, 0.6]))
    with pytest.raises(InputError, match="not be negative or NaN"):
        check_probabilities("odds", torch.tensor([0.5, torch.nan]))
    check_probabilities("odds", torch.tensor([1 / 3] * 3))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_is_refused(kind) -> None:
    with pytest.raises(InputError, match="at least 1, got"):
        kind().sample(2, 0)
