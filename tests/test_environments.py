"""Environments: sampling, observations, rewards, values of decision processes, and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from worlds import make_generator

from innerloop.errors import InputError, OutOfRangeError
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.rollout import rollout
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.bandit import ActionSet
from innerloop.problems.base import Distribution
from innerloop.problems.bernoulli_bandits import BernoulliBandit, BernoulliBandits
from innerloop.problems.environment import Environment, check_probabilities, sample_inverse_cdf
from innerloop.problems.linear_bandits import LinearBandit, LinearBandits
from innerloop.problems.mdp import TabularMDP, dynamic_programming
from innerloop.problems.river_swim import RiverSwim
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.registry import load_members

KINDS = [LinearBandits, BernoulliBandits, TabularMDPs, RiverSwim]
CASES = [(kind, case) for kind in KINDS for case in kind.cases]


def make_unchecked(kind: type, **values: object) -> Any:
    """Make an instance without its constructor, whose annotated shapes the tests enforce.

    Users run without that enforcement, so `__post_init__` must refuse bad values itself.
    """
    instance = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_every_case_can_be_sampled_in_any_batch(kind, case: dict, batch: tuple) -> None:
    environment = kind.from_values(case).sample(*batch, generator=make_generator())
    assert environment.batch == batch
    again, single = (
        kind.from_values(case).sample(*batch, generator=make_generator(), dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    assert torch.equal(environment.reference_tensor, again.reference_tensor)
    assert torch.equal(environment.to(torch.float32).reference_tensor, single.reference_tensor)
    assert single.reference_tensor.dtype == torch.float32


def test_the_registry_finds_the_environments() -> None:
    found = load_members("problems", Distribution)
    assert {"linear-bandits", "bernoulli-bandits", "tabular-mdps", "river-swim"} <= set(found)


def test_a_batch_can_be_indexed_and_sliced() -> None:
    bandit = LinearBandits(d=2, arms=3).sample(4, 5, generator=make_generator())
    assert torch.equal(bandit[2].features, bandit.features[2])
    assert torch.equal(bandit[1, 3].weights, bandit.weights[1, 3])
    assert bandit[1:3].batch == (2, 5)
    with pytest.raises(InputError, match=r"expected an index within a batch of .* got 7"):
        bandit[7]
    with pytest.raises(InputError, match="at most 2 indices"):
        bandit[0, 0, 0]


def test_linear_bandits_have_the_distribution_of_their_settings() -> None:
    bandit = LinearBandits(d=4, arms=3, bound=2.0).sample(20_000, generator=make_generator())
    assert float(bandit.features.norm(dim=-1).max()) <= 2.0
    assert stats.kstest(bandit.features.flatten().numpy(), "uniform", (-1.0, 2.0)).pvalue > 0.01
    assert stats.kstest(bandit.weights.flatten().numpy(), "norm", (0.0, 0.5)).pvalue > 0.01
    uniform = LinearBandits(d=4, prior="uniform").sample(5_000, generator=make_generator())
    assert stats.kstest(uniform.weights.flatten().numpy(), "uniform").pvalue > 0.01
    assert float(uniform.features.abs().max()) <= 1.0
    given = LinearBandits(d=2, prior=torch.tensor([1.0, -2.0])).sample(3)
    assert given.weights.tolist() == [[1.0, -2.0]] * 3


def test_linear_rewards_are_linear_up_to_their_noise() -> None:
    bandit = LinearBandits(d=3, arms=4, sets=2, noise=0.7).sample(
        50_000, generator=make_generator()
    )
    luck = bandit.draw_luck(make_generator(1))
    action = torch.randint(4, (50_000,), generator=make_generator(2))
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


def test_bernoulli_rewards_have_the_probabilities_of_their_arms() -> None:
    sampled = BernoulliBandits(arms=2).sample(20_000, generator=make_generator()).chances
    assert stats.kstest(sampled.flatten().numpy(), "beta", (1, 1)).pvalue > 0.01
    chances = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    bandit = BernoulliBandits(arms=3, chances=chances).sample(40_000)
    observation = bandit.observe(0, luck := bandit.draw_luck(make_generator()), None)
    assert torch.equal(observation.features[7], torch.eye(3, dtype=torch.float64))
    for arm, chance in enumerate(chances):
        reward = bandit.reward(observation, torch.full((40_000,), arm), luck)
        assert set(reward.unique().tolist()) <= {0.0, 1.0}
        assert float(reward.mean()) == pytest.approx(float(chance), abs=0.01)


def test_transitions_are_uniform_on_the_simplex() -> None:
    mdp = TabularMDPs(states=3, arms=2, horizon=2).sample(5_000, generator=make_generator())
    # A coordinate of a flat Dirichlet vector of length S is Beta(1, S − 1).
    assert stats.kstest(mdp.transitions[..., 0].flatten().numpy(), "beta", (1, 2)).pvalue > 0.01
    assert stats.kstest(mdp.rewards.flatten().numpy(), "uniform").pvalue > 0.01


def test_moves_follow_the_transitions() -> None:
    mdp = TabularMDPs(states=3, arms=2, horizon=2).sample(generator=make_generator())
    many = TabularMDP(
        *(x.expand(60_000, *x.shape) for x in (mdp.transitions, mdp.rewards, mdp.initial))
    )
    first = many.observe(0, many.draw_luck(make_generator(1)), None)
    assert first.step == 0
    np.testing.assert_allclose(first.state.bincount().numpy() / 60_000, mdp.initial, atol=0.01)
    action = torch.randint(2, (60_000,), generator=make_generator(2))
    second = many.observe(1, many.draw_luck(make_generator(3)), (first, action))
    assert second.step == 1
    for s, a in itertools.product(range(3), range(2)):
        here = (first.state == s) & (action == a)
        frequencies = second.state[here].bincount(minlength=3) / here.sum()
        np.testing.assert_allclose(frequencies.numpy(), mdp.transitions[0, s, a], atol=0.02)
        rewards = many.reward(first, action, many.draw_luck(make_generator(4)))[here]
        assert rewards.unique().tolist() == [float(mdp.rewards[0, s, a])]


def sum_over_paths(mdp: TabularMDP, plan: tuple[tuple[int, ...], ...]) -> float:
    """Value of a deterministic plan: the sum over all paths of probability times reward."""
    total = 0.0
    for path in itertools.product(range(mdp.states), repeat=mdp.horizon):
        probability, reward = float(mdp.initial[path[0]]), 0.0
        for h, s in enumerate(path):
            reward += float(mdp.rewards[h, s, plan[h][s]])
            if h + 1 < mdp.horizon:
                probability *= float(mdp.transitions[h, s, plan[h][s], path[h + 1]])
        total += probability * reward
    return total


def test_the_value_is_that_of_the_best_plan() -> None:
    mdp = TabularMDPs(states=2, arms=3, horizon=3).sample(generator=make_generator(5))
    rows = list(itertools.product(range(3), repeat=2))
    values = {plan: sum_over_paths(mdp, plan) for plan in itertools.product(rows, repeat=3)}
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
    mdp = TabularMDPs(states=3, arms=2, horizon=4).sample(2, 3, generator=make_generator())
    batched = dynamic_programming(mdp.rewards, mdp.transitions, most=1.3)
    for i, j in np.ndindex(2, 3):
        single = mdp[i, j]
        value = np.zeros(3)
        for h in reversed(range(4)):
            q = np.zeros((3, 2))
            for s, a in np.ndindex(3, 2):
                q[s, a] = min(
                    1.3,
                    float(single.rewards[h, s, a]) + single.transitions[h, s, a].numpy() @ value,
                )
            np.testing.assert_allclose(batched[i, j, h].numpy(), q, atol=1e-14)
            value = q.max(axis=1)


def test_river_swim_agrees_with_a_calculation_by_hand() -> None:
    """Three states: staying left is best for a horizon of 2, swimming right for 3."""
    two = RiverSwim(states=3, horizon=2).sample()
    assert float(two.value()) == pytest.approx(0.01, abs=1e-15)
    three = RiverSwim(states=3, horizon=3).sample()
    # First right. If washed back (0.4), collect left twice; if in the middle (0.6), right again.
    middle = 0.05 * 0.005 + 0.35 * 1.0
    assert float(three.value()) == pytest.approx(0.4 * 0.01 + 0.6 * middle, abs=1e-15)
    right = torch.zeros(3, 3, 2, dtype=torch.float64)
    right[..., 1] = 1.0
    assert float(three.value(right)) == pytest.approx(0.6 * 0.35, abs=1e-15)


def test_river_swim_agrees_with_value_iteration_in_plain_loops() -> None:
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


def test_choices_have_their_probabilities_and_impossible_ones_never_occur() -> None:
    probabilities = torch.tensor([0.2, 0.0, 0.5, 0.3, 0.0], dtype=torch.float64)
    uniform = torch.rand(50_000, generator=make_generator(), dtype=torch.float64)
    choices = sample_inverse_cdf(probabilities.expand(50_000, 5), uniform)
    np.testing.assert_allclose(
        choices.bincount(minlength=5).numpy() / 50_000, probabilities, atol=0.01
    )
    extremes = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert sample_inverse_cdf(probabilities.expand(2, 5), extremes).tolist() == [0, 3]
    first_is_zero = torch.tensor([[0.0, 0.7, 0.3, 0.0]] * 2)
    assert sample_inverse_cdf(first_is_zero, extremes).tolist() == [1, 2], (
        "single precision, uniform numbers in double"
    )


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
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
def test_bad_settings_are_named(kind, setting: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind.from_values(setting)


ONES = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (LinearBandit, {"features": ONES, "weights": torch.ones(3)}, "expected features"),
        (LinearBandit, {"features": ONES[0], "weights": torch.ones(4)}, "expected features"),
        (LinearBandit, {"features": ONES[:, :0], "weights": torch.ones(4)}, "at least one action"),
        (LinearBandit, {"features": 0 * ONES, "weights": torch.ones(4)}, "are not all 0 for each"),
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
def test_bad_bandits_are_named(kind, values: dict, message: str) -> None:
    bandit = make_unchecked(kind, **{"noise": 1.0, **values})
    with pytest.raises(InputError, match=message):
        bandit.__post_init__()


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_bad_decision_processes_are_named(change: dict, message: str) -> None:
    good = {
        "transitions": torch.full((2, 3, 2, 3), 1 / 3),
        "rewards": torch.ones(2, 3, 2),
        "initial": torch.ones(3) / 3,
    }
    make_unchecked(TabularMDP, **good).__post_init__()
    with pytest.raises(InputError, match=message):
        make_unchecked(TabularMDP, **{**good, **change}).__post_init__()


@pytest.mark.parametrize(
    ("environment", "steps", "error", "message"),
    [
        (LinearBandits(sets=5).sample(), 6, OutOfRangeError, "expected at most 5 steps, .* got 6"),
        (LinearBandits().sample(), 0, InputError, "at least 1, got 0"),
        (LinearBandits().sample(), True, InputError, "whole number"),
        (LinearBandits().sample(), 10**9, OutOfRangeError, "at most"),
        (RiverSwim(horizon=4).sample(), 6, InputError, "whole episodes of 4, got 6"),
    ],
)
def test_numbers_of_steps_that_cannot_be_played_are_refused(
    environment: Environment, steps: int, error, message
) -> None:
    with pytest.raises(error, match=message):
        environment.check_steps(steps)


def test_invalid_probabilities_are_refused() -> None:
    with pytest.raises(InputError, match=r"sums that are 0\.1 away"):
        check_probabilities("odds", torch.tensor([0.5, 0.6]))
    with pytest.raises(InputError, match="not be negative or NaN"):
        check_probabilities("odds", torch.tensor([0.5, torch.nan]))
    check_probabilities("odds", torch.tensor([1 / 3] * 3))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_is_refused(kind) -> None:
    with pytest.raises(InputError, match="at least 1, got"):
        kind().sample(2, 0)


class Broken(BernoulliBandit):
    """A bandit whose third reward is not a number."""

    def reward(self, observation: ActionSet, action: Tensor, luck: Tensor) -> Tensor:
        earned = super().reward(observation, action, luck)
        return earned if observation.step < 2 else earned * torch.nan


def test_an_environment_that_earns_no_number_is_named() -> None:
    """Not the policy, whose probabilities a NaN reward spoils a step later."""
    bandit = Broken(torch.full((2, 3), 0.5, dtype=torch.float64))
    for policy in (UniformPolicy(), LinUCBPolicy()):
        with pytest.raises(InputError, match="got one that is not finite from Broken at step 3"):
            rollout(policy, bandit, 5, 0)
