"""EM and Lloyd's algorithm: scikit-learn as the oracle, bounds at their rates, empty clusters."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture as ScikitMixture

import innerloop
from innerloop.algorithms.em import EM
from innerloop.algorithms.lloyd import Lloyd, margin
from innerloop.constructions.em import EMByAttention
from innerloop.constructions.law import deviations
from innerloop.constructions.lloyd import LloydByAttention
from innerloop.errors import InputError, OutOfRange
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture


def em(noise: float = 1.0, weights: tuple[float, ...] = (0.2, 0.5, 0.3)) -> EM:
    return EM(torch.tensor(noise, dtype=torch.float64), torch.tensor(weights).double().log())


def k_means(start: torch.Tensor, **settings: int) -> KMeans:
    """scikit-learn's, from given means."""
    given: dict[str, Any] = {"init": start.numpy(), "n_init": 1, "tol": 0.0, **settings}
    return KMeans(len(start), **given)


def one(points: list[list[float]], start: list[list[float]]) -> ClusteringProblem:
    """A problem from plain lists."""
    return ClusteringProblem.of([points], [start])


def test_shares_are_the_posteriors_of_scipy() -> None:
    problem = GaussianMixture(d=2, n=15).sample(4)
    found = em(1.3).predict(problem, problem.start)
    for k in range(4):
        distances = np.linalg.norm(problem.x[k, :, None] - problem.start[k], axis=-1)
        densities = norm.pdf(distances, scale=1.3)
        weighted = densities * np.array([0.2, 0.5, 0.3])
        expected = weighted / weighted.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found[k].numpy(), expected, rtol=1e-6, atol=1e-12)


def test_a_step_of_em_is_scikit_learns() -> None:
    """One iteration of GaussianMixture with the covariance that it starts from."""
    problem = GaussianMixture(d=3, n=40).sample(5)
    found = em().step(problem, problem.start, 0)
    for k in range(5):
        other = ScikitMixture(
            3,
            covariance_type="spherical",
            weights_init=np.array([0.2, 0.5, 0.3]),
            means_init=problem.start[k].numpy(),
            precisions_init=np.ones(3),
            max_iter=1,
            reg_covar=0.0,
            tol=0.0,
        )
        with warnings.catch_warnings(action="ignore"):  # one iteration does not converge
            other.fit(problem.x[k].numpy())
        np.testing.assert_allclose(found[k].numpy(), np.array(other.means_), rtol=1e-5, atol=1e-6)


def test_em_never_lowers_the_likelihood() -> None:
    problem = GaussianMixture(d=2, n=30, separation=1.5).sample(20)
    algorithm = em()
    likelihoods = []
    for means in algorithm.states(problem, 12):
        distances = torch.cdist(problem.x, means).square() / 2
        likelihoods.append((algorithm.log_weights - distances).logsumexp(dim=-1).sum(dim=-1))
    assert (torch.stack(likelihoods).diff(dim=0) > -1e-9).all()


def test_a_mean_far_from_all_points_still_has_its_formula() -> None:
    """All shares of the third cluster underflow; their ratios do not."""
    problem = one([[0.0], [1.0], [2.0]], [[0.0], [2.0], [90.0]])
    found = em().step(problem, problem.start, 0)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found[0, 2, 0], torch.tensor(2.0, dtype=torch.float64))
    built = EMByAttention(d=1, n=3, clusters=3, steps=2, bound=100.0)
    assert not deviations(built, built.transformer, problem).broken


def test_lloyd_is_scikit_learns() -> None:
    """Step by step, from where nothing is empty: KMeans moves empty clusters elsewhere."""
    problem = GaussianMixture(d=2, n=40, separation=4.0).sample(12)
    states = list(Lloyd().states(problem, 6))
    for before, after in pairwise(states):
        members = Lloyd().predict(problem, before)
        for k in range(12):
            if members[k].sum(dim=0).min() == 0:
                continue
            other = k_means(before[k], max_iter=1)
            with warnings.catch_warnings(action="ignore"):
                other.fit(problem.x[k].numpy())
            np.testing.assert_allclose(after[k].numpy(), other.cluster_centers_, atol=1e-10)


def test_built_lloyd_ends_where_scikit_learn_ends() -> None:
    built = innerloop.build("lloyd", d=2, n=40, steps=30, instances=8)
    problem = GaussianMixture(d=2, n=40, separation=5.0, start="near").sample(6)
    shares = built.predict(problem)
    for k in range(6):
        labels = k_means(problem.start[k]).fit_predict(problem.x[k].numpy())
        np.testing.assert_array_equal(shares[k].argmax(dim=-1).numpy(), labels)


def test_an_empty_cluster_moves_to_the_mean_of_all_points() -> None:
    problem = one([[0.0, 0.0], [1.0, 0.0], [8.0, 1.0]], [[0.0, 0.1], [8.0, 1.0], [-20.0, 0.0]])
    found = Lloyd().step(problem, problem.start, 0)
    torch.testing.assert_close(found[0, 2], problem.x[0].mean(dim=0))
    built = LloydByAttention(d=2, n=3, clusters=3, steps=3)
    result = deviations(built, built.transformer, problem)
    assert not result.broken
    assert result.usage <= 1


def test_clusters_that_are_empty_together_are_a_tie() -> None:
    """Both move to the mean of all points, and nobody can tell them apart: said, not guessed."""
    points = [[0.0, 0.0], [1.0, 0.0], [8.0, 1.0]]
    built = innerloop.build("lloyd", d=2, n=3, steps=3, instances=4)
    with pytest.raises(OutOfRange, match="after step 1 the data reach"):
        built.predict(one(points, [[1.0, 0.1], [-20.0, 0.0], [-25.0, 0.0]]))


def test_lloyds_error_falls_as_its_bound_says() -> None:
    """Like e^{−β}: the points of other clusters are all that is left of the error."""
    found, focuses = [], (16.0, 20.0, 24.0)
    for focus in focuses:
        certificate = innerloop.build("lloyd", focus=focus, n=12, instances=32).certificate
        assert certificate.holds
        found.append(max(certificate.step_deviation))
    slope = np.polyfit(focuses, np.log(found), 1)[0]
    assert abs(slope + 1) < 0.05


def test_ems_error_falls_like_the_square_of_the_knots() -> None:
    counts, found = np.array([100, 400, 1600]), []
    for knots in counts:
        certificate = innerloop.build("em", knots=int(knots), instances=32).certificate
        assert certificate.holds
        found.append(max(certificate.step_deviation))
    slope = np.polyfit(np.log(counts - 1), np.log(found), 1)[0]
    assert abs(slope + 2) < 0.1


def test_the_error_of_the_knots_is_half_over_m_squared() -> None:
    """What em.py says of −γ log γ, on a grid far finer than the knots."""
    for m in (1, 2, 10, 300):
        knots = np.linspace(0, 1, m + 1) ** 2
        grid = np.linspace(0, 1, 200_001)[1:] ** 2
        exact = -grid * np.log(grid)
        values = np.append(0.0, -knots[1:] * np.log(knots[1:]))
        error = exact - np.interp(grid, knots, values)
        assert error.min() > -1e-12
        assert 0.3 / m**2 < error.max() <= 0.5 / m**2


def test_other_weights_give_other_answers() -> None:
    problem = GaussianMixture(d=2, n=20, separation=1.0).sample(3)
    even = innerloop.build("em", d=2, n=20, instances=4)
    uneven = innerloop.build("em", d=2, n=20, instances=4, weights=[0.8, 0.1, 0.1])
    assert (even.predict(problem) - uneven.predict(problem)).abs().max() > 0.1


def test_points_at_the_margin_go_to_the_nearest_mean() -> None:
    """Just beyond the margin, for means as far out as the bound allows: the choice is right."""
    construction = LloydByAttention(d=3, n=3, clusters=2, steps=1)
    means = 30 * (0.97 + 0.02 * torch.rand(200, 2, 3, dtype=torch.float64))
    apart = means[:, 1] - means[:, 0]
    shift = 1.5e-6 * apart / apart.square().sum(dim=-1, keepdim=True)
    points = torch.stack([means[:, 0], means[:, 1], means.mean(dim=1) + shift], dim=1)
    found = deviations(construction, construction.transformer, ClusteringProblem(points, means))
    assert 0.5 < found.usage <= 1
    assert not found.broken


def test_points_near_a_tie_are_detected() -> None:
    built = innerloop.build("lloyd", d=1, n=3, clusters=2, instances=4)
    problem = one([[0.0], [1.0 + 1e-8], [2.0]], [[0.0], [2.0]])
    assert margin(problem, problem.start) == pytest.approx(2e-8)
    with pytest.raises(OutOfRange, match="after step 0 the data reach 50 times the range"):
        built.predict(problem)


@pytest.mark.parametrize("name", ["em", "lloyd"])
def test_data_beyond_a_limit_are_refused(name: str) -> None:
    built = innerloop.build(name, instances=4)
    sample = GaussianMixture().sample(2)
    assert built.predict(sample).shape == (2, 40, 3)
    with pytest.raises(OutOfRange, match="times the bound of 30"):
        built.predict(replace(sample, x=100 * sample.x))
    with pytest.raises(OutOfRange, match="built for d=3, clusters=3; got d=2, clusters=3"):
        built.predict(GaussianMixture(d=2).sample(2))
    with pytest.raises(OutOfRange, match="up to n=40 points, got 41"):
        built.predict(GaussianMixture(n=41).sample(2))


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("em", {"weights": [0.5, 0.5]}, "proportions must be 3 positive numbers with sum 1"),
        ("em", {"weights": [0.5, 0.6, -0.1]}, "proportions must be 3 positive"),
        ("em", {"noise": 1e300}, "noise must be at most"),
        ("lloyd", {"margin": -1.0}, "margin must be at least"),
        ("lloyd", {"d": 128, "bound": 1e4}, "distances are rounded to .* use a smaller bound"),
        ("lloyd", {"sharpness": 1e6, "margin": 9e-6}, "must be at least 9.39 .* got 9"),
        ("lloyd", {"sharpness": 1.0}, r"sharpness · margin must be at least 9.*got 1e-06"),
        ("em", {"noise": 0.0}, "noise must be at least"),
    ],
)
def test_impossible_parameters_name_the_limit(name: str, parameters: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        innerloop.build(name, **parameters)


@pytest.mark.parametrize("name", ["em", "lloyd"])
def test_fewer_points_than_clusters(name: str) -> None:
    assert innerloop.build(name, n=2, clusters=4, instances=4).certificate.holds


def test_bad_problems_are_named() -> None:
    sample = GaussianMixture(d=2, n=5).sample(2)
    with pytest.raises(InputError, match="finite"):
        replace(sample, x=torch.full_like(sample.x, torch.nan))
    with pytest.raises(InputError, match="4 clusters cannot start at 3 distinct points"):
        GaussianMixture(n=3, clusters=4)
