"""EM and Lloyd's algorithm: against scikit-learn, rates of the error bounds, empty clusters."""

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
from innerloop.certification.law import measure_deviations
from innerloop.certification.measuring import measure_instances
from innerloop.constructions.em import EMConstruction
from innerloop.constructions.lloyd import LloydConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture


def make_em(noise: float = 1.0, weights: tuple[float, ...] = (0.2, 0.5, 0.3)) -> EM:
    return EM(torch.tensor(noise, dtype=torch.float64), torch.tensor(weights).double().log())


def make_k_means(start: torch.Tensor, **settings: int) -> KMeans:
    """scikit-learn's k-means, started from given means."""
    arguments: dict[str, Any] = {"init": start.numpy(), "n_init": 1, "tol": 0.0, **settings}
    return KMeans(len(start), **arguments)


def make_problem(points: list[list[float]], start: list[list[float]]) -> ClusteringProblem:
    """A problem from plain lists."""
    return ClusteringProblem.from_arrays([points], [start])


def test_shares_are_posteriors_computed_with_scipy() -> None:
    problem = GaussianMixture(d=2, n=15).sample(4)
    found = make_em(1.3).predict(problem, problem.start)
    for k in range(4):
        distances = np.linalg.norm(problem.x[k, :, None] - problem.start[k], axis=-1)
        densities = norm.pdf(distances, scale=1.3)
        weighted = densities * np.array([0.2, 0.5, 0.3])
        expected = weighted / weighted.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found[k].numpy(), expected, rtol=1e-6, atol=1e-12)


def test_a_step_of_em_agrees_with_scikit_learn() -> None:
    """One iteration of GaussianMixture with the covariance that it starts from."""
    problem = GaussianMixture(d=3, n=40).sample(5)
    found = make_em().step(problem, problem.start, 0)
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
    algorithm = make_em()
    likelihoods = []
    for means in algorithm.states(problem, 12):
        distances = torch.cdist(problem.x, means).square() / 2
        likelihoods.append((algorithm.log_weights - distances).logsumexp(dim=-1).sum(dim=-1))
    assert (torch.stack(likelihoods).diff(dim=0) > -1e-9).all()


def test_a_mean_far_from_all_points_still_has_its_formula() -> None:
    """All shares of the third cluster underflow; their ratios do not."""
    problem = make_problem([[0.0], [1.0], [2.0]], [[0.0], [2.0], [90.0]])
    found = make_em().step(problem, problem.start, 0)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found[0, 2, 0], torch.tensor(2.0, dtype=torch.float64))
    built = EMConstruction(d=1, n=3, clusters=3, steps=2, bound=100.0)
    assert not measure_deviations(built, built.transformer, problem).broken


def test_lloyd_agrees_with_scikit_learn() -> None:
    """Step by step; steps with an empty cluster are skipped, because KMeans moves it elsewhere."""
    problem = GaussianMixture(d=2, n=40, separation=4.0).sample(12)
    states = list(Lloyd().states(problem, 6))
    for before, after in pairwise(states):
        members = Lloyd().predict(problem, before)
        for k in range(12):
            if members[k].sum(dim=0).min() == 0:
                continue
            other = make_k_means(before[k], max_iter=1)
            with warnings.catch_warnings(action="ignore"):
                other.fit(problem.x[k].numpy())
            np.testing.assert_allclose(after[k].numpy(), other.cluster_centers_, atol=1e-10)


def test_built_lloyd_ends_where_scikit_learn_ends() -> None:
    built = innerloop.build("lloyd", d=2, n=40, steps=30, instances=8)
    problem = GaussianMixture(d=2, n=40, separation=5.0, start="near").sample(6)
    shares = built.predict(problem)
    for k in range(6):
        labels = make_k_means(problem.start[k]).fit_predict(problem.x[k].numpy())
        np.testing.assert_array_equal(shares[k].argmax(dim=-1).numpy(), labels)


def test_an_empty_cluster_moves_to_the_mean_of_all_points() -> None:
    problem = make_problem(
        [[0.0, 0.0], [1.0, 0.0], [8.0, 1.0]], [[0.0, 0.1], [8.0, 1.0], [-20.0, 0.0]]
    )
    found = Lloyd().step(problem, problem.start, 0)
    torch.testing.assert_close(found[0, 2], problem.x[0].mean(dim=0))
    built = LloydConstruction(d=2, n=3, clusters=3, steps=3)
    result = measure_deviations(built, built.transformer, problem)
    assert not result.broken
    assert result.usage <= 1


def test_two_empty_clusters_are_a_tie_and_refused() -> None:
    """Both clusters move to the mean of all points: the tie is an error, not broken arbitrarily."""
    points = [[0.0, 0.0], [1.0, 0.0], [8.0, 1.0]]
    built = innerloop.build("lloyd", d=2, n=3, steps=3, instances=4)
    with pytest.raises(OutOfRangeError, match="after step 1 the data reach"):
        built.predict(make_problem(points, [[1.0, 0.1], [-20.0, 0.0], [-25.0, 0.0]]))


def test_lloyds_error_falls_as_its_bound_says() -> None:
    """The error falls like e^{−focus}, the weight left on points of other clusters."""
    errors, focuses = [], (16.0, 20.0, 24.0)
    for focus in focuses:
        certificate = innerloop.build("lloyd", focus=focus, n=12, instances=32).certificate
        assert certificate.holds
        errors.append(max(certificate.step_deviation))
    slope = np.polyfit(focuses, np.log(errors), 1)[0]
    assert abs(slope + 1) < 0.05


def test_ems_error_falls_like_the_square_of_the_knots() -> None:
    """On the same instances for each: a certificate draws further ones as the knots need them."""
    counts, errors = np.array([100, 400, 1600]), []
    for knots in counts:
        construction = EMConstruction(knots=int(knots))
        found, _, _ = measure_instances(construction, construction.transformer, 32, 0)
        assert not found.broken
        errors.append(max(found.step))
    slope = np.polyfit(np.log(counts - 1), np.log(errors), 1)[0]
    assert abs(slope + 2) < 0.1


def test_the_error_of_the_knots_is_half_over_m_squared() -> None:
    """The interpolation error of −γ log γ is at most 1/(2m²), as em.py declares."""
    for m in (1, 2, 10, 300):
        knots = np.linspace(0, 1, m + 1) ** 2
        grid = np.linspace(0, 1, 200_001)[1:] ** 2
        exact = -grid * np.log(grid)
        values = np.append(0.0, -knots[1:] * np.log(knots[1:]))
        error = exact - np.interp(grid, knots, values)
        assert error.min() > -1e-12
        assert 0.3 / m**2 < error.max() <= 0.5 / m**2


def test_the_weights_change_the_prediction() -> None:
    problem = GaussianMixture(d=2, n=20, separation=1.0).sample(3)
    even = innerloop.build("em", d=2, n=20, instances=4)
    uneven = innerloop.build("em", d=2, n=20, instances=4, weights=[0.8, 0.1, 0.1])
    assert (even.predict(problem) - uneven.predict(problem)).abs().max() > 0.1


def test_points_at_the_margin_go_to_the_nearest_mean() -> None:
    """Points just beyond the margin are assigned correctly, even for means near the bound."""
    construction = LloydConstruction(d=3, n=3, clusters=2, steps=1)
    means = 30 * (0.97 + 0.02 * torch.rand(200, 2, 3, dtype=torch.float64))
    difference = means[:, 1] - means[:, 0]
    shift = 1.5e-6 * difference / difference.square().sum(dim=-1, keepdim=True)
    points = torch.stack([means[:, 0], means[:, 1], means.mean(dim=1) + shift], dim=1)
    deviations = measure_deviations(
        construction, construction.transformer, ClusteringProblem(points, means)
    )
    assert 0.5 < deviations.usage <= 1
    assert not deviations.broken


def test_points_near_a_tie_are_detected() -> None:
    built = innerloop.build("lloyd", d=1, n=3, clusters=2, instances=4)
    problem = make_problem([[0.0], [1.0 + 1e-8], [2.0]], [[0.0], [2.0]])
    assert margin(problem, problem.start) == pytest.approx(2e-8)
    with pytest.raises(OutOfRangeError, match="after step 0 the data reach 50 times the range"):
        built.predict(problem)


@pytest.mark.parametrize("name", ["em", "lloyd"])
def test_data_beyond_a_limit_are_refused(name: str) -> None:
    built = innerloop.build(name, instances=4)
    sample = GaussianMixture().sample(2)
    assert built.predict(sample).shape == (2, 40, 3)
    with pytest.raises(OutOfRangeError, match="times the bound of 30"):
        built.predict(replace(sample, x=100 * sample.x))
    with pytest.raises(OutOfRangeError, match="was built for d=3, got d=2"):
        built.predict(GaussianMixture(d=2).sample(2))
    with pytest.raises(OutOfRangeError, match="up to n=40, got n=41"):
        built.predict(GaussianMixture(n=41).sample(2))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("em", {"weights": [0.5, 0.5]}, "proportions must be 3 positive numbers with sum 1"),
        ("em", {"weights": [0.5, 0.6, -0.1]}, "proportions must be 3 positive"),
        ("em", {"noise": 1e300}, "noise must be at most"),
        ("lloyd", {"margin": -1.0}, "margin must be at least"),
        ("lloyd", {"d": 128, "bound": 1e4}, "the rounding of distances .* use a smaller bound"),
        ("lloyd", {"sharpness": 1e6, "margin": 9e-6}, "must be at least 9.39 .* got 9"),
        ("lloyd", {"sharpness": 1.0}, r"sharpness · margin must be at least 9.*got 1e-06"),
        ("em", {"noise": 0.0}, "noise must be at least"),
    ],
)
def test_impossible_parameters_name_the_limit(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        innerloop.build(name, **parameters)


@pytest.mark.parametrize("name", ["em", "lloyd"])
def test_fewer_points_than_clusters(name: str) -> None:
    assert innerloop.build(name, n=2, clusters=4, instances=4).certificate.holds


def test_bad_problems_are_named() -> None:
    sample = GaussianMixture(d=2, n=5).sample(2)
    with pytest.raises(InputError, match="finite"):
        replace(sample, x=torch.full_like(sample.x, torch.nan))
    with pytest.raises(InputError, match=r"expected at least 4 points, .* got 3"):
        GaussianMixture(n=3, clusters=4)
