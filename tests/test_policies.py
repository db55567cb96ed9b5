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
from worlds import STEPS, WORLDS, make_generator

from innerloop.errors import InputError
from innerloop.policies import posterior as posterior_file
from innerloop.policies.base import greedy_probabilities
from innerloop.policies.bernoulli_thompson import BernoulliThompsonPolicy
from innerloop.policies.empirical_average import EmpiricalAveragePolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.linear_thompson import LinearThompsonPolicy
from innerloop.policies.posterior import Posterior
from innerloop.policies.rollout import Draws, play, rollout
from innerloop.policies.ucb import UCBPolicy
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.problems.bandit import BanditHistory
from innerloop.problems.mdp import EpisodeHistory


def solve_ridge(history: BanditHistory, index: tuple[int, ...], t: int, ridge: float):
    """Compute G, ŵ and the chosen rows of the first t steps of one environment in NumPy."""
    actions = history.actions[index][:t].numpy()
    rows = history.features[index].numpy()[np.arange(t), actions]
    gram = ridge * np.eye(rows.shape[1]) + rows.T @ rows
    return gram, np.linalg.solve(gram, rows.T @ history.rewards[index][:t].numpy()), rows


@pytest.mark.parametrize("world", ["fixed", "changing"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_lin_ucb_agrees_with_its_formula_in_numpy(world: str, temperature: float) -> None:
    policy = LinUCBPolicy(alpha=1.3, ridge=0.4, temperature=temperature)
    game = rollout(policy, WORLDS[world].sample(2, 3, generator=make_generator()), STEPS, 1)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            gram, weights, _ = solve_ridge(game.history, index, t, 0.4)
            features = game.history.features[index][t].numpy()
            inverse = np.linalg.inv(gram)
            scores = [a @ weights + 1.3 * math.sqrt(a @ inverse @ a) for a in features]
            expected = np.eye(4)[np.argmax(scores)]
            if temperature:
                expected = softmax(np.array(scores) / temperature)
            np.testing.assert_allclose(game.probabilities[index][t].numpy(), expected, atol=1e-12)


def draw_examples(d: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, rewards = torch.randn(n, d, 2, 3).double(), torch.randn(n, 2, 3).double()
    return rows, rewards


@pytest.mark.parametrize("ridge", [1e-8, 0.3, 50.0])
@pytest.mark.parametrize(("d", "n"), [(4, 30), (5, 3), (1, 6), (3, 0)])
def test_updating_the_posterior_agrees_with_computing_it_from_scratch(
    d: int, n: int, ridge: float
) -> None:
    rows, rewards = draw_examples(d, n)
    posterior = Posterior.prior(torch.zeros(2, 3, 1, 1, d).double(), ridge)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.update(row, reward)
    for index in np.ndindex(2, 3):
        x, y = rows[..., *index].numpy(), rewards[..., *index].numpy()
        root = posterior.root[..., *index].numpy()
        covariance = np.linalg.inv(ridge * np.eye(d) + x.T @ x)
        # NumPy's inverse loses as many digits as the condition number has.
        scale = 1e-12 * max(1.0, np.linalg.cond(covariance)) * np.abs(covariance).max()
        np.testing.assert_allclose(root.T @ root, covariance, atol=scale)
        if n >= d:
            fitted = Ridge(alpha=ridge, fit_intercept=False, solver="cholesky").fit(x, y).coef_
            found = posterior.mean[..., *index].numpy()
            np.testing.assert_allclose(found, fitted, atol=1e-11 * max(1.0, np.abs(fitted).max()))


@pytest.mark.parametrize("max_products", [0, posterior_file.MAX_BROADCAST_PRODUCTS])
@pytest.mark.parametrize("d", [1, 3, 12])
def test_widths_values_and_symmetric_roots_agree_with_numpy(
    d: int, max_products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posterior_file, "MAX_BROADCAST_PRODUCTS", max_products)
    rows, rewards = draw_examples(d, 9)
    posterior = Posterior.prior(torch.zeros(2, 3, 1, 1, d).double(), 0.3)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.update(row, reward)
    features, noise = torch.randn(5, d, 2, 3).double(), torch.randn(d, 2, 3).double()
    widths, values = posterior.confidence_widths(features), posterior.values(features)
    deviations = posterior.deviation(noise)
    for index in np.ndindex(2, 3):
        x, a = rows[..., *index].numpy(), features[..., *index].numpy()
        covariance = np.linalg.inv(0.3 * np.eye(d) + x.T @ x)
        expected = np.sqrt(np.diag(a @ covariance @ a.T))
        np.testing.assert_allclose(widths[..., *index].numpy(), expected, rtol=1e-12)
        fitted = a @ covariance @ x.T @ rewards[..., *index].numpy()
        np.testing.assert_allclose(values[..., *index].numpy(), fitted, atol=1e-12)
        root = np.real(sqrtm(covariance)) @ noise[..., *index].numpy()
        np.testing.assert_allclose(deviations[..., *index].numpy(), root, atol=1e-12)


def test_the_posterior_stays_exact_over_thousands_of_steps() -> None:
    rows, rewards = draw_examples(3, 2000)
    posterior = Posterior.prior(torch.zeros(2, 3, 1, 1, 3).double(), 1.0)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.update(row, reward)
    x = rows.movedim((0, 1), (-2, -1))
    gram = torch.eye(3).double() + x.mT @ x
    covariance = torch.einsum("kibc,kjbc->bcij", posterior.root, posterior.root)
    torch.testing.assert_close(covariance, torch.linalg.inv(gram), rtol=0, atol=1e-16)


def test_thompson_sampling_agrees_with_its_formula_given_the_noise() -> None:
    policy = LinearThompsonPolicy(ridge=0.6, scale=0.8)
    environment = WORLDS["fixed"].sample(2, 3, generator=make_generator())
    draws = Draws.sample(policy, environment, STEPS, 1)
    game = play(policy, environment, draws)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            gram, weights, _ = solve_ridge(game.history, index, t, 0.6)
            root = np.real(sqrtm(np.linalg.inv(gram)))
            sampled = weights + 0.8 * root @ draws.noise[t][index].numpy()
            best = np.argmax(game.history.features[index][t].numpy() @ sampled)
            assert game.probabilities[index][t].tolist() == np.eye(4)[best].tolist()


def test_thompson_draws_have_the_posteriors_mean_and_covariance() -> None:
    rows, rewards = (part[..., 0, 0] for part in draw_examples(3, 7))
    posterior = Posterior.prior(torch.zeros(1, 1, 3).double(), 0.5)
    for row, reward in zip(rows, rewards, strict=True):
        posterior = posterior.update(row, reward)
    many = Posterior(*(part.unsqueeze(-1).expand(*part.shape, 100_000) for part in posterior))
    noise = torch.randn(100_000, 3, generator=make_generator(), dtype=torch.float64)
    samples = LinearThompsonPolicy(ridge=0.5, scale=0.8).draw_weights(many, noise).numpy()
    gram = 0.5 * np.eye(3) + rows.numpy().T @ rows.numpy()
    mean = np.linalg.solve(gram, rows.numpy().T @ rewards.numpy())
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(samples.T), 0.64 * np.linalg.inv(gram), atol=0.01)
    whitened = (samples - mean) @ np.real(sqrtm(gram)) / 0.8
    assert stats.kstest(whitened.flatten(), "norm").pvalue > 0.01


def test_the_posterior_is_the_bayesian_one() -> None:
    """Conditioning the joint Gaussian of weights and rewards gives the same mean and covariance."""
    rows, rewards = (part[..., 0, 0].numpy() for part in draw_examples(3, 5))
    noise, ridge = 0.7, 0.4
    prior = noise**2 / ridge * np.eye(3)
    total = rows @ prior @ rows.T + noise**2 * np.eye(5)
    gain = prior @ rows.T @ np.linalg.inv(total)
    posterior = Posterior.prior(torch.zeros(1, 1, 3).double(), ridge)
    for row, reward in zip(torch.from_numpy(rows), torch.from_numpy(rewards), strict=True):
        posterior = posterior.update(row, reward)
    np.testing.assert_allclose(posterior.mean.numpy(), gain @ rewards, atol=1e-13)
    covariance = noise**2 * posterior.root.mT @ posterior.root
    np.testing.assert_allclose(covariance.numpy(), prior - gain @ rows @ prior, atol=1e-13)


def collect_rewards(history: BanditHistory, index: tuple[int, ...], t: int) -> list[list[float]]:
    """Collect the rewards of each arm in the first t steps of one environment."""
    arms: list[list[float]] = [[] for _ in range(history.features.shape[-2])]
    actions, rewards = (part[index][:t].tolist() for part in (history.actions, history.rewards))
    for action, reward in zip(actions, rewards, strict=True):
        arms[action].append(reward)
    return arms


def split_among_best(scores: list[float]) -> list[float]:
    """Probabilities that are equal among the largest scores and 0 elsewhere."""
    best = [score == max(scores) for score in scores]
    return [is_best / sum(best) for is_best in best]


def test_ucb_and_the_empirical_average_agree_with_plain_python() -> None:
    environment = WORLDS["bernoulli"].sample(2, 3, generator=make_generator())
    ucb = rollout(UCBPolicy(width=1.5), environment, STEPS, 1)
    average = rollout(EmpiricalAveragePolicy(epsilon=0.2), environment, STEPS, 1)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            arms = collect_rewards(ucb.history, index, t)
            scores = [
                sum(arm) / len(arm) + math.sqrt(1.5 * math.log(t) / len(arm)) if arm else math.inf
                for arm in arms
            ]
            assert ucb.probabilities[index][t].tolist() == pytest.approx(split_among_best(scores))
            arms = collect_rewards(average.history, index, t)
            odds = split_among_best([sum(arm) / len(arm) if arm else math.inf for arm in arms])
            expected = [0.8 * share + 0.2 / 4 for share in odds]
            assert average.probabilities[index][t].tolist() == pytest.approx(expected)


def test_bernoulli_thompson_draws_from_scipys_beta() -> None:
    policy = BernoulliThompsonPolicy()
    environment = WORLDS["bernoulli"].sample(2, 3, generator=make_generator())
    draws = Draws.sample(policy, environment, STEPS, 1)
    game = play(policy, environment, draws)
    for index in np.ndindex(2, 3):
        for t in range(STEPS):
            arms = collect_rewards(game.history, index, t)
            quantiles = stats.norm.cdf(draws.noise[t][index].numpy())
            samples = [
                stats.beta(1 + sum(arm), 1 + len(arm) - sum(arm)).ppf(quantile)
                for arm, quantile in zip(arms, quantiles, strict=True)
            ]
            assert game.probabilities[index][t].tolist() == split_among_best(samples)
    state = policy.init_state(environment[0, 0])._replace(
        counts=torch.tensor([9.0, 0.0, 3.0, 1.0]).double().expand(20_000, 4),
        sums=torch.tensor([2.0, 0.0, 3.0, 0.0]).double().expand(20_000, 4),
    )
    chances = policy.draw_chances(
        state, torch.randn(20_000, 4, generator=make_generator()).double()
    ).numpy()
    for arm, (a, b) in enumerate([(3, 8), (1, 1), (4, 1), (1, 2)]):
        assert stats.kstest(chances[:, arm], "beta", (a, b)).pvalue > 0.01


def plan_in_loops(
    history: EpisodeHistory, index: tuple[int, ...], k: int, sizes, policy: UCBVIPolicy
):
    """Compute the values of UCB-VI after k episodes of one environment in plain loops."""
    horizon, states, actions = sizes
    log = math.log(states * actions * policy.steps / policy.delta)
    episodes = list(
        zip(*(part[index][:k].tolist() for part in history), strict=True),
    )
    value = [0.0] * states
    table = np.zeros((horizon, states, actions))
    for h in reversed(range(horizon)):
        for s, a in np.ndindex(states, actions):
            visits = [e for e in episodes if e[0][h] == s and e[1][h] == a]
            n = max(1, len(visits))
            bonus = policy.bonus * horizon * math.sqrt(log / n) if visits else horizon
            q = sum(e[2][h] for e in visits) / n + bonus
            if h + 1 < horizon:
                q += sum(value[e[0][h + 1]] for e in visits) / n
            table[h, s, a] = min(horizon, q)
        value = table[h].max(axis=1).tolist()
    return table


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("world", ["tabular", "river"])
def test_ucb_vi_agrees_with_plain_loops(world: str, temperature: float) -> None:
    environment = WORLDS[world].sample(2, 2, generator=make_generator())
    sizes = (environment.horizon, environment.states, environment.actions)
    policy = UCBVIPolicy(bonus=0.02, steps=60, temperature=temperature)
    game = rollout(policy, environment, 12 * environment.horizon, 3)
    probabilities = game.probabilities.unflatten(-2, (12, environment.horizon))
    for index in np.ndindex(2, 2):
        for k in range(12):
            table = plan_in_loops(game.history, index, k, sizes, policy)
            for h, s in enumerate(game.history.states[index][k].tolist()):
                expected = greedy_probabilities(torch.from_numpy(table[h, s]))
                if temperature:
                    expected = softmax(table[h, s] / temperature)
                np.testing.assert_allclose(probabilities[index][k, h].numpy(), expected, atol=1e-12)


def test_ucb_vi_has_little_regret_after_many_episodes() -> None:
    environment = WORLDS["tabular"].sample(20, generator=make_generator())
    game = rollout(UCBVIPolicy(bonus=0.05), environment, 4 * 250, 1)
    assert float(game.regret[:, -50:].mean()) < 0.02 < float(game.regret[:, :20].mean())


def test_a_low_temperature_is_greedy_and_log_probabilities_do_not_underflow() -> None:
    environment = WORLDS["fixed"].sample(50, generator=make_generator())
    observation = environment.observe(0, torch.zeros(50), None)
    noise = torch.zeros(50, 0).double()
    hard, soft, cold = (LinUCBPolicy(temperature=t) for t in (0.0, 0.5, 1e-4))
    state = hard.init_state(environment)
    torch.testing.assert_close(
        hard.probabilities(state, observation, noise), cold.probabilities(state, observation, noise)
    )
    logs = soft.log_probabilities(state, observation, noise)
    torch.testing.assert_close(logs.exp(), soft.probabilities(state, observation, noise))
    frozen = LinUCBPolicy(temperature=1e-5).log_probabilities(state, observation, noise)
    assert bool(torch.isfinite(frozen).all())
    assert float(frozen.min()) < -1000
    logs = hard.log_probabilities(state, observation, noise)
    assert bool(((logs == 0) | (logs == -torch.inf)).all())


def test_greedy_probabilities_are_equal_among_ties() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0], [math.inf, 0.0, math.inf], [2.0, 1.0, 0.0]])
    assert greedy_probabilities(scores).tolist() == [
        [0.0, 0.5, 0.5],
        [0.5, 0.0, 0.5],
        [1.0, 0.0, 0.0],
    ]


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        (LinUCBPolicy, {"ridge": 0.0}, "ridge must be at least"),
        (LinUCBPolicy, {"ridge": -1.0}, "ridge must be at least"),
        (LinUCBPolicy, {"alpha": -1.0}, "alpha must be at least 0"),
        (LinUCBPolicy, {"temperature": -0.1}, "temperature must be at least 0"),
        (LinUCBPolicy, {"temperature": math.nan}, "temperature must be finite"),
        (LinUCBPolicy, {"alhpa": 1.0}, "did you mean 'alpha'"),
        (LinearThompsonPolicy, {"scale": -1.0}, "scale must be at least 0"),
        (EmpiricalAveragePolicy, {"epsilon": 1.5}, "epsilon must be at most 1"),
        (UCBPolicy, {"width": -1.0}, "width must be at least 0"),
        (UCBVIPolicy, {"delta": 0.0}, "delta must be at least"),
        (UCBVIPolicy, {"steps": 0}, "steps must be at least 1"),
    ],
)
def test_bad_settings_are_named(kind, setting: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind.from_values(setting)
