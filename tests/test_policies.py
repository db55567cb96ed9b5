"""Reference policies against NumPy, SciPy, scikit-learn and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import sqrtm
from scipy.special import softmax
from sklearn.linear_model import Ridge
from worlds import STEPS, WORLDS, seeded

from innerloop.errors import InputError
from innerloop.policies import posterior as posterior_file
from innerloop.policies.base import greedy
from innerloop.policies.bernoulli_thompson import BernoulliThompson
from innerloop.policies.empirical_average import EmpiricalAverage
from innerloop.policies.lin_ucb import LinUCB
from innerloop.policies.linear_thompson import LinearThompson
from innerloop.policies.posterior import Posterior
from innerloop.policies.rollout import Draws, play, rollout
from innerloop.policies.ucb import UCB
from innerloop.policies.ucb_vi import UCBVI
from innerloop.problems.bandit import BanditHistory
from innerloop.problems.mdp import EpisodeHistory


def known(history: BanditHistory, index: tuple[int, ...], t: int, ridge: float):
    """G, ŵ and the rows of the first t steps of one environment, from scratch in NumPy."""
    actions = history.actions[index][:t].numpy()
    rows = history.features[index].numpy()[np.arange(t), actions]
    gram = ridge * np.eye(rows.shape[1]) + rows.T @ rows
    return gram, np.linalg.solve(gram, rows.T @ history.rewards[index][:t].numpy()), rows


@pytest.mark.parametrize("world", ["fixed", "changing"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_lin_ucb_is_the_formula_from_scratch(world: str, temperature: float) -> None:
    policy = LinUCB(alpha=1.3, ridge=0.4, temperature=temperature)
    game = rollout(policy, WORLDS[world].sample(2, 3, generator=seeded()), STEPS, 1)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            gram, weights, _ = known(game.history, index, t, 0.4)
            shown = game.history.features[index][t].numpy()
            inverse = np.linalg.inv(gram)
            scores = [a @ weights + 1.3 * math.sqrt(a @ inverse @ a) for a in shown]
            expected = np.eye(4)[np.argmax(scores)]
            if temperature:
                expected = softmax(np.array(scores) / temperature)
            np.testing.assert_allclose(game.probabilities[index][t].numpy(), expected, atol=1e-12)


def examples(d: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, rewards = torch.randn(n, d, 2, 3).double(), torch.randn(n, 2, 3).double()
    return rows, rewards


@pytest.mark.parametrize("ridge", [1e-8, 0.3, 50.0])
@pytest.mark.parametrize(("d", "n"), [(4, 30), (5, 3), (1, 6), (3, 0)])
def test_the_posterior_step_by_step_is_the_one_from_scratch(d: int, n: int, ridge: float) -> None:
    rows, rewards = examples(d, n)
    posterior = Posterior.start(torch.zeros(2, 3, 1, 1, d).double(), ridge)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.updated(row, reward)
    for index in np.ndindex(2, 3):
        x, y = rows[..., *index].numpy(), rewards[..., *index].numpy()
        root = posterior.root[..., *index].numpy()
        covariance = np.linalg.inv(ridge * np.eye(d) + x.T @ x)
        # The ratio of the largest to the smallest number here is lost in the inverse of NumPy too.
        scale = 1e-12 * max(1.0, np.linalg.cond(covariance)) * np.abs(covariance).max()
        np.testing.assert_allclose(root.T @ root, covariance, atol=scale)
        if n >= d:
            fitted = Ridge(alpha=ridge, fit_intercept=False, solver="cholesky").fit(x, y).coef_
            found = posterior.mean[..., *index].numpy()
            np.testing.assert_allclose(found, fitted, atol=1e-11 * max(1.0, np.abs(fitted).max()))


@pytest.mark.parametrize("few", [0, posterior_file.FEW])
@pytest.mark.parametrize("d", [1, 3, 12])
def test_widths_and_symmetric_roots(d: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior_file, "FEW", few)
    rows, rewards = examples(d, 9)
    posterior = Posterior.start(torch.zeros(2, 3, 1, 1, d).double(), 0.3)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.updated(row, reward)
    features, noise = torch.randn(5, d, 2, 3).double(), torch.randn(d, 2, 3).double()
    widths, values = posterior.widths(features), posterior.values(features)
    turned = posterior.deviation(noise)
    for index in np.ndindex(2, 3):
        x, a = rows[..., *index].numpy(), features[..., *index].numpy()
        covariance = np.linalg.inv(0.3 * np.eye(d) + x.T @ x)
        expected = np.sqrt(np.diag(a @ covariance @ a.T))
        np.testing.assert_allclose(widths[..., *index].numpy(), expected, rtol=1e-12)
        fitted = a @ covariance @ x.T @ rewards[..., *index].numpy()
        np.testing.assert_allclose(values[..., *index].numpy(), fitted, atol=1e-12)
        root = np.real(sqrtm(covariance)) @ noise[..., *index].numpy()
        np.testing.assert_allclose(turned[..., *index].numpy(), root, atol=1e-12)


def test_the_posterior_stays_exact_over_thousands_of_steps() -> None:
    rows, rewards = examples(3, 2000)
    posterior = Posterior.start(torch.zeros(2, 3, 1, 1, 3).double(), 1.0)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.updated(row, reward)
    x = rows.movedim((0, 1), (-2, -1))
    gram = torch.eye(3).double() + x.mT @ x
    covariance = torch.einsum("kibc,kjbc->bcij", posterior.root, posterior.root)
    torch.testing.assert_close(covariance, torch.linalg.inv(gram), rtol=0, atol=1e-16)


def test_thompson_weights_are_the_formula_given_the_noise() -> None:
    policy = LinearThompson(ridge=0.6, scale=0.8)
    environment = WORLDS["fixed"].sample(2, 3, generator=seeded())
    draws = Draws.of(policy, environment, STEPS, 1)
    game = play(policy, environment, draws)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            gram, weights, _ = known(game.history, index, t, 0.6)
            root = np.real(sqrtm(np.linalg.inv(gram)))
            drawn = weights + 0.8 * root @ draws.noise[t][index].numpy()
            best = np.argmax(game.history.features[index][t].numpy() @ drawn)
            assert game.probabilities[index][t].tolist() == np.eye(4)[best].tolist()


def test_thompson_draws_have_the_posteriors_mean_and_covariance() -> None:
    rows, rewards = (part[..., 0, 0] for part in examples(3, 7))
    posterior = Posterior.start(torch.zeros(1, 1, 3).double(), 0.5)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.updated(row, reward)
    many = Posterior(*(part.unsqueeze(-1).expand(*part.shape, 100_000) for part in posterior))
    noise = torch.randn(100_000, 3, generator=seeded(), dtype=torch.float64)
    drawn = LinearThompson(ridge=0.5, scale=0.8).weights(many, noise).numpy()
    gram = 0.5 * np.eye(3) + rows.numpy().T @ rows.numpy()
    mean = np.linalg.solve(gram, rows.numpy().T @ rewards.numpy())
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(drawn.T), 0.64 * np.linalg.inv(gram), atol=0.01)
    whitened = (drawn - mean) @ np.real(sqrtm(gram)) / 0.8
    assert stats.kstest(whitened.flatten(), "norm").pvalue > 0.01


def test_thompsons_posterior_is_the_bayesian_one() -> None:
    """Conditioning the joint Gaussian of weights and rewards gives the same mean and covariance."""
    rows, rewards = (part[..., 0, 0].numpy() for part in examples(3, 5))
    noise, ridge = 0.7, 0.4
    prior = noise**2 / ridge * np.eye(3)
    total = rows @ prior @ rows.T + noise**2 * np.eye(5)
    gain = prior @ rows.T @ np.linalg.inv(total)
    posterior = Posterior.start(torch.zeros(1, 1, 3).double(), ridge)
    for row, reward in zip(torch.from_numpy(rows), torch.from_numpy(rewards), strict=True):
        posterior = posterior.updated(row, reward)
    np.testing.assert_allclose(posterior.mean.numpy(), gain @ rewards, atol=1e-13)
    covariance = noise**2 * posterior.root.mT @ posterior.root
    np.testing.assert_allclose(covariance.numpy(), prior - gain @ rows @ prior, atol=1e-13)


def tallies(history: BanditHistory, index: tuple[int, ...], t: int) -> list[list[float]]:
    """The rewards of each arm in the first t steps of one environment."""
    chosen = zip(
        history.actions[index][:t].tolist(), history.rewards[index][:t].tolist(), strict=True
    )
    arms: list[list[float]] = [[] for _ in range(history.features.shape[-2])]
    chosen, earned = (part[index][:t].tolist() for part in (history.actions, history.rewards))
    for action, reward in zip(chosen, earned, strict=True):
        arms[action].append(reward)
    return arms


def evenly(scores: list[float]) -> list[float]:
    best = [score == max(scores) for score in scores]
    return [hit / sum(best) for hit in best]


def test_ucb_and_the_empirical_average_in_plain_python() -> None:
    environment = WORLDS["bernoulli"].sample(2, 3, generator=seeded())
    ucb = rollout(UCB(width=1.5), environment, STEPS, 1)
    average = rollout(EmpiricalAverage(epsilon=0.2), environment, STEPS, 1)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            arms = tallies(ucb.history, index, t)
            scores = [
                sum(arm) / len(arm) + math.sqrt(1.5 * math.log(t) / len(arm)) if arm else math.inf
                for arm in arms
            ]
            assert ucb.probabilities[index][t].tolist() == pytest.approx(evenly(scores))
            arms = tallies(average.history, index, t)
            odds = evenly([sum(arm) / len(arm) if arm else math.inf for arm in arms])
            expected = [0.8 * share + 0.2 / 4 for share in odds]
            assert average.probabilities[index][t].tolist() == pytest.approx(expected)


def test_bernoulli_thompson_draws_from_scipys_beta() -> None:
    policy = BernoulliThompson()
    environment = WORLDS["bernoulli"].sample(2, 3, generator=seeded())
    draws = Draws.of(policy, environment, STEPS, 1)
    game = play(policy, environment, draws)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            arms = tallies(game.history, index, t)
            lots = stats.norm.cdf(draws.noise[t][index].numpy())
            drawn = [
                stats.beta(1 + sum(arm), 1 + len(arm) - sum(arm)).ppf(lot)
                for arm, lot in zip(arms, lots, strict=True)
            ]
            assert game.probabilities[index][t].tolist() == evenly(drawn)
    state = policy.start(environment[0, 0])._replace(
        counts=torch.tensor([9.0, 0.0, 3.0, 1.0]).double().expand(20_000, 4),
        sums=torch.tensor([2.0, 0.0, 3.0, 0.0]).double().expand(20_000, 4),
    )
    chances = policy.chances(state, torch.randn(20_000, 4, generator=seeded()).double()).numpy()
    for arm, (a, b) in enumerate([(3, 8), (1, 1), (4, 1), (1, 2)]):
        assert stats.kstest(chances[:, arm], "beta", (a, b)).pvalue > 0.01


def planned(history: EpisodeHistory, index: tuple[int, ...], k: int, sizes, policy: UCBVI):
    """The values of UCB-VI after k episodes of one environment, in plain loops over counts."""
    horizon, states, actions = sizes
    log = math.log(states * actions * policy.steps / policy.delta)
    episodes = list(
        zip(*(part[index][:k].tolist() for part in history), strict=True),
    )
    value = [0.0] * states
    table = np.zeros((horizon, states, actions))
    for h in reversed(range(horizon)):
        for s, a in np.ndindex(states, actions):
            seen = [e for e in episodes if e[0][h] == s and e[1][h] == a]
            n = max(1, len(seen))
            bonus = policy.bonus * horizon * math.sqrt(log / n) if seen else horizon
            q = sum(e[2][h] for e in seen) / n + bonus
            if h + 1 < horizon:
                q += sum(value[e[0][h + 1]] for e in seen) / n
            table[h, s, a] = min(horizon, q)
        value = table[h].max(axis=1).tolist()
    return table


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("world", ["tabular", "river"])
def test_ucb_vi_in_plain_loops(world: str, temperature: float) -> None:
    environment = WORLDS[world].sample(2, 2, generator=seeded())
    sizes = (environment.horizon, environment.states, environment.actions)
    policy = UCBVI(bonus=0.02, steps=60, temperature=temperature)
    game = rollout(policy, environment, 12 * environment.horizon, 3)
    odds = game.probabilities.unflatten(-2, (12, environment.horizon))
    for index in np.ndindex(2, 2):
        for k in range(12):
            table = planned(game.history, index, k, sizes, policy)
            for h, s in enumerate(game.history.states[index][k].tolist()):
                expected = greedy(torch.from_numpy(table[h, s]))
                if temperature:
                    expected = softmax(table[h, s] / temperature)
                np.testing.assert_allclose(odds[index][k, h].numpy(), expected, atol=1e-12)


def test_ucb_vi_plans_the_best_once_it_has_seen_enough() -> None:
    environment = WORLDS["tabular"].sample(20, generator=seeded())
    game = rollout(UCBVI(bonus=0.05), environment, 4 * 250, 1)
    assert float(game.regret[:, -50:].mean()) < 0.02 < float(game.regret[:, :20].mean())


def test_soft_odds_become_greedy_and_logs_do_not_underflow() -> None:
    environment = WORLDS["fixed"].sample(50, generator=seeded())
    observation = environment.observe(0, torch.zeros(50), None)
    noise = torch.zeros(50, 0).double()
    hard, soft, cold = (LinUCB(temperature=t) for t in (0.0, 0.5, 1e-4))
    state = hard.start(environment)
    torch.testing.assert_close(
        hard.probabilities(state, observation, noise), cold.probabilities(state, observation, noise)
    )
    logs = soft.log_probabilities(state, observation, noise)
    torch.testing.assert_close(logs.exp(), soft.probabilities(state, observation, noise))
    frozen = LinUCB(temperature=1e-5).log_probabilities(state, observation, noise)
    assert bool(torch.isfinite(frozen).all())
    assert float(frozen.min()) < -1000
    logs = hard.log_probabilities(state, observation, noise)
    assert bool(((logs == 0) | (logs == -torch.inf)).all())


def test_greed_is_even_among_equals() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0], [math.inf, 0.0, math.inf], [2.0, 1.0, 0.0]])
    assert greedy(scores).tolist() == [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("kind", "setting", "says"),
    [
        (LinUCB, {"ridge": 0.0}, "ridge must be at least"),
        (LinUCB, {"ridge": -1.0}, "ridge must be at least"),
        (LinUCB, {"alpha": -1.0}, "alpha must be at least 0"),
        (LinUCB, {"temperature": -0.1}, "temperature must be at least 0"),
        (LinUCB, {"temperature": math.nan}, "temperature must be finite"),
        (LinUCB, {"alhpa": 1.0}, "did you mean 'alpha'"),
        (LinearThompson, {"scale": -1.0}, "scale must be at least 0"),
        (EmpiricalAverage, {"epsilon": 1.5}, "epsilon must be at most 1"),
        (UCB, {"width": -1.0}, "width must be at least 0"),
        (UCBVI, {"delta": 0.0}, "delta must be at least"),
        (UCBVI, {"steps": 0}, "steps must be at least 1"),
    ],
)
def test_bad_settings_are_named(kind, setting: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        kind.made(setting)
