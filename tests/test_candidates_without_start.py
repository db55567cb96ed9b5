"""Candidates for networks without a start agree with NumPy and SciPy, and are identified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import beta as beta_law
from torch import Tensor

from innerloop.algorithms.fixed_start_iteration import FixedStartIteration
from innerloop.algorithms.restarted_em import RestartedEM
from innerloop.algorithms.soft_spectral_clustering import SoftSpectralClustering
from innerloop.identification.identification import identify
from innerloop.identification.trained import name_clusters_of_layers
from innerloop.policies.arms import Tally
from innerloop.policies.bernoulli_thompson import BernoulliThompsonPolicy
from innerloop.policies.posterior import Posterior
from innerloop.policies.prior_lin_ucb import PriorLinUCBPolicy
from innerloop.policies.probability_matching import ProbabilityMatchingPolicy
from innerloop.problems.bandit import ActionSet
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.principal_components import PrincipalComponents

OWN = np.array([0.3, -0.8, 0.4])


def draw(distribution: Any, count: int) -> Any:
    return distribution.sample(count, generator=torch.Generator().manual_seed(0))


def iterate_from_own_start(x: Tensor) -> Tensor:
    """Two steps of the power method from a vector in the weights, prompt by prompt."""
    rows = []
    for points in x.numpy():
        vector = OWN
        for _ in range(2):
            vector = points.T @ (points @ vector)
        rows.append(vector / np.linalg.norm(vector))
    return torch.from_numpy(np.stack(rows)).unsqueeze(1)


def label_softly(x: Tensor) -> Tensor:
    """Tanh of 1.7 times the projection on the leading direction, by NumPy's SVD."""
    rows = []
    for points in x.numpy():
        centred = points - points.mean(axis=0)
        rows.append(np.tanh(1.7 * centred @ np.linalg.svd(centred)[2][0]))
    return torch.from_numpy(np.stack(rows))


def test_a_start_in_the_weights_is_found() -> None:
    found = identify(
        iterate_from_own_start, PrincipalComponents(d=3, n=8, components=1), prompts=64
    )
    (layer,) = found.layers
    assert (layer.algorithm, layer.fit, layer.step) == ("fixed-start-iteration", "match", 2)
    start = np.array([found.hyperparameters[f"start[{k}]"] for k in range(3)])
    cosine = start @ OWN / np.linalg.norm(start) / np.linalg.norm(OWN)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-6)


def test_an_estimate_finds_the_starts_of_several_components() -> None:
    problem = draw(PrincipalComponents(d=4, n=9, components=2), 40)
    guess = FixedStartIteration.guesses(problem)[1]
    *_, last = guess.states(problem, 3)
    answers = (last.unsqueeze(-1) * last.unsqueeze(-2)).flatten(1)
    estimate = FixedStartIteration.guesses(problem)[0].estimate(problem, answers, 3)
    cosines = (estimate.start * guess.start).sum(dim=-1).abs()
    torch.testing.assert_close(cosines, torch.ones(2, dtype=torch.float64), atol=1e-6, rtol=0)


def test_soft_labels_of_two_clouds_are_found() -> None:
    found = identify(label_softly, BinaryMixture(d=3, n=10, separation=3.0), prompts=64)
    assert (found.algorithm, found.layers[0].fit) == ("soft-spectral-clustering", "match")
    assert found.hyperparameters["stiffness"] == pytest.approx(1.7, abs=1e-3)


def test_soft_labels_are_a_tanh() -> None:
    problem = draw(BinaryMixture(d=3, n=10), 5)
    algorithm = SoftSpectralClustering(torch.tensor(1.7, dtype=torch.float64))
    *_, last = algorithm.states(problem, 400)
    said = algorithm.predict(problem, last).squeeze(-1)
    other = label_softly(problem.x)
    sign = (said * other).sum(dim=-1, keepdim=True).sign()
    torch.testing.assert_close(said * sign, other, atol=1e-6, rtol=0)


def compute_logits(points: Any, means: Any, noise: float) -> Any:
    return -((points[:, None] - means) ** 2).sum(axis=-1) / 2 / noise**2


def run_em(points: Any, means: Any, noise: float, steps: int) -> tuple[float, Any]:
    """The log likelihood and the shares after some steps of EM, with NumPy."""
    for _ in range(steps):
        logits = compute_logits(points, means, noise)
        shares = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
        means = shares.T @ points / shares.sum(axis=0)[:, None]
    logits = compute_logits(points, means, noise)
    each = logsumexp(logits, axis=1, keepdims=True)
    return float(each.sum()), np.exp(logits - each)


def test_em_from_many_starts_keeps_the_likeliest() -> None:
    noise, clusters = 0.8, 3
    problem = draw(GaussianMixture(d=2, n=14, clusters=clusters), 12)
    algorithm = RestartedEM(torch.tensor(noise, dtype=torch.float64))
    *_, last = algorithm.states(problem, 5)
    said, moved = algorithm.predict(problem, last), 0
    for k in range(len(problem)):
        points = problem.x[k].numpy()
        starts = [problem.start[k].numpy(), *points[:12].reshape(-1, clusters, 2)]
        runs = [run_em(points, start, noise, 5) for start in starts]
        best = max(range(len(runs)), key=lambda r: runs[r][0])
        moved += best > 0
        shares = runs[best][1]
        columns = [np.abs(said[k].numpy()[:, [j]] - shares).max(axis=0) for j in range(clusters)]
        assert sorted(int(column.argmin()) for column in columns) == [0, 1, 2]
        assert max(column.min() for column in columns) < 1e-9
    assert moved > 3


def test_names_of_clusters_do_not_matter_layer_by_layer() -> None:
    problem: ClusteringProblem = draw(GaussianMixture(d=2, n=14, clusters=3), 20)
    algorithm = RestartedEM(torch.tensor(1.0, dtype=torch.float64))
    *_, last = algorithm.states(problem, 20)
    shares = algorithm.predict(problem, last)
    generator = torch.Generator().manual_seed(1)
    renamed = torch.stack(
        [
            torch.stack([row[:, torch.randperm(3, generator=generator)] for row in shares])
            for _ in range(2)
        ]
    )
    torch.testing.assert_close(
        name_clusters_of_layers(problem, 1.0, renamed), shares.expand(2, *shares.shape)
    )


def test_odds_of_being_best_are_an_integral_and_the_mean_of_thompson_sampling() -> None:
    counts = torch.tensor([[5.0, 30.0, 0.0]], dtype=torch.float64)
    tally = Tally(counts, torch.tensor([[4.0, 17.0, 0.0]], dtype=torch.float64))
    look = ActionSet(0, torch.eye(3, dtype=torch.float64)[None])
    odds = ProbabilityMatchingPolicy(prior=2.0).probabilities(tally, look, counts[:, :0])[0]
    laws = [beta_law(2 + k, 2 + n - k) for k, n in ((4, 5), (17, 30), (0, 0))]
    for a in range(3):
        b, c = (laws[j] for j in range(3) if j != a)
        exact = quad(lambda q, a=a, b=b, c=c: laws[a].pdf(q) * b.cdf(q) * c.cdf(q), 0, 1)[0]
        assert float(odds[a]) == pytest.approx(exact, abs=1e-8)
    normals = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0)).double()
    many = Tally(*(each.expand(20_000, 3) for each in tally))
    drawn = BernoulliThompsonPolicy().probabilities(many, look, normals).mean(dim=0)
    uniform = ProbabilityMatchingPolicy().probabilities(tally, look, counts[:, :0])[0]
    torch.testing.assert_close(uniform, drawn, atol=0.015, rtol=0)


def test_a_prior_mean_draws_the_estimate_of_lin_ucb() -> None:
    world = draw(LinearBandits(d=2, arms=3), 1)
    policy = PriorLinUCBPolicy(mean=0.7, ridge=2.0, alpha=0.0)
    state: Posterior = policy.init_state(world)
    features = world.action_features[0, 0].numpy()
    for action, reward in ((0, 1.0), (2, -0.5)):
        look = ActionSet(0, world.action_features[:, 0])
        state = policy.update(state, look, torch.tensor([action]), torch.tensor([reward]).double())
    seen = features[[0, 2]]
    pull = 2.0 * 0.7 * np.ones(2) + seen.T @ np.array([1.0, -0.5])
    expected = features @ np.linalg.solve(2.0 * np.eye(2) + seen.T @ seen, pull)
    np.testing.assert_allclose(policy.score_actions(state, look)[0].numpy(), expected, atol=1e-10)


def test_who_matches_probabilities_is_found() -> None:
    found = identify(
        ProbabilityMatchingPolicy(prior=1.5), BernoulliBandits(arms=3), prompts=24,
        algorithms=["probability-matching", "lin-ucb", "bernoulli-thompson"],
    )  # fmt: skip
    assert (found.algorithm, found.layers[0].fit) == ("probability-matching", "match")
    assert found.hyperparameters["prior"][0] == pytest.approx(1.5, abs=1e-3)
