"""Baselines of clusters and components, real data, and clouds that violate assumptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

from innerloop.claims.baselines import (
    CLUSTERINGS,
    cluster_from_start,
    cluster_points,
    find_components,
)
from innerloop.claims.datasets import cut_crosses, draw_clouds, draw_tables, load_set
from innerloop.claims.encoders import (
    TrainedEncoder,
    load_encoder,
    measure_sine_squares,
    train_on_pools,
)
from innerloop.claims.yang2025 import clouds
from innerloop.errors import FileError, InputError
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.problems.principal_components import PrincipalComponents


def make_generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("name", CLUSTERINGS)
def test_clusterings_find_clouds_that_are_far_apart(name: str) -> None:
    generator = make_generator()
    labels = torch.arange(12).remainder(3).expand(2, 12)
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], dtype=torch.float64)
    x = centres[labels] + 0.3 * torch.randn(2, 12, 2, generator=generator, dtype=torch.float64)
    found = cluster_points(name, x / 3, 3)
    for own, other in zip(found, labels, strict=True):
        # One random start may put two means into one cloud, which ends worse but above chance.
        assert adjusted_rand_score(other, own) > (0.3 if name == "KMeans, one start" else 0.99)


def test_clusterings_that_cannot_be_are_refused() -> None:
    x = torch.zeros(1, 2, 2, dtype=torch.float64)
    with pytest.raises(InputError, match="3 clusters need as many points, got 2"):
        cluster_points(CLUSTERINGS[0], x, 3)
    with pytest.raises(InputError, match="no clustering called 'DBSCAN'"):
        cluster_points("DBSCAN", x, 1)
    with pytest.raises(InputError, match="no algorithm called 'K'"):
        cluster_from_start("K", ClusteringProblem(x, x[:, :1]))
    with pytest.raises(InputError, match="no data set called 'mnist'"):
        load_set("mnist")
    sizes: Any = {"d": 5, "n": 9, "count": 1, "power": 1.0, "generator": make_generator()}
    with pytest.raises(InputError, match="iris has 4 features, fewer than the 5 wanted"):
        draw_tables("iris", **sizes)
    with pytest.raises(InputError, match="iris has 4 features, fewer than the 5 wanted"):
        draw_clouds("iris", [0, 1], **sizes)


def test_lloyd_from_the_start_is_scikit_learns() -> None:
    problem = GaussianMixture(d=2, n=30).sample(6, generator=make_generator())
    found = cluster_from_start("Lloyd", problem)
    for x, start, labels in zip(problem.x, problem.start, found, strict=True):
        given: Any = {"init": start.numpy(), "n_init": 1, "tol": 0.0}
        fitted = KMeans(3, **given).fit(x.numpy())
        assert adjusted_rand_score(fitted.labels_, labels) == pytest.approx(1.0)


def test_em_from_the_start_finds_clouds_that_are_far_apart() -> None:
    law = GaussianMixture(d=2, n=30, separation=50.0, start="near")
    problem = law.sample(4, generator=make_generator())
    assert problem.labels is not None
    assert torch.equal(cluster_from_start("EM", problem), problem.labels)


def test_components_are_those_of_centred_points() -> None:
    problem = PrincipalComponents(d=4, n=9, components=2).sample(3, generator=make_generator())
    found = find_components(problem)
    for x, vectors in zip(problem.x.numpy(), found.numpy(), strict=True):
        expected = np.linalg.svd(x - x.mean(axis=0)).Vh[:2]
        np.testing.assert_allclose(np.abs(vectors @ expected.T), np.eye(2), atol=1e-8)


def test_sines_are_numpys() -> None:
    problem = PrincipalComponents(d=3, n=9, components=2).sample(4, generator=make_generator())
    guess = torch.randn(2, 4, 2, 3, generator=make_generator(), dtype=torch.float64)
    found = measure_sine_squares(guess, problem)
    for k in range(4):
        truth = np.linalg.svd(problem.x[k].numpy()).Vh[:2]
        unit = guess[1, k].numpy() / np.linalg.norm(guess[1, k].numpy(), axis=-1, keepdims=True)
        expected = 1 - (unit * truth).sum(axis=-1) ** 2
        assert float(found[1, k]) == pytest.approx(expected.mean(), rel=1e-9)


def test_real_tables_have_the_training_problems_size() -> None:
    problem = draw_tables("wine", d=4, n=20, count=7, power=1.9, generator=make_generator())
    assert problem.x.shape == (7, 20, 4)
    assert float(problem.x.square().sum(dim=-1).mean()) == pytest.approx(1.9)
    x, target = load_set("wine")
    wine: Any = load_wine()
    np.testing.assert_allclose(x, StandardScaler().fit_transform(wine.data), atol=1e-9)
    np.testing.assert_array_equal(target, wine.target)
    crosses = cut_crosses()
    assert crosses.shape == (1797 * 36, 5)
    np.testing.assert_allclose(crosses.mean(axis=0), 0.0, atol=1e-9)


def test_real_clouds_keep_their_classes() -> None:
    problem = draw_clouds(
        "iris", [0, 2], d=2, n=30, count=5, power=10.0, generator=make_generator()
    )
    assert problem.labels is not None
    assert set(problem.labels.flatten().tolist()) == {0, 1}
    # Setosa is apart from virginica: the first component tells them by its sign.
    signs = problem.x[..., 0] > 0
    agree = (signs == problem.labels.bool()).double().mean(dim=-1)
    assert float(torch.maximum(agree, 1 - agree).min()) == 1.0


@pytest.mark.parametrize("violation", clouds.VIOLATIONS)
def test_clouds_violate_what_they_say(violation: str) -> None:
    law = GaussianMixture(d=2, n=40, separation=100.0)
    problem = clouds.draw_clouds(law, violation, 200, make_generator())
    assert problem.labels is not None
    expected = {"two clouds": 2, "four clouds": 4}.get(violation, 3)
    assert int(problem.labels.max()) + 1 == expected
    assert problem.start.shape == (200, 3, 2)
    share = float((problem.labels == 0).double().mean())
    assert share == pytest.approx(0.7 if violation == "unequal" else 1 / expected, abs=0.03)
    spreads = [spread_within(problem, label) for label in range(expected)]
    if violation == "anisotropic":
        # Axes of length 2 and 1/2: (4 + 1/4)/2.
        assert spreads == pytest.approx([2.125] * 3, rel=0.1)
    elif violation == "unequal":
        assert spreads == pytest.approx([0.25, 1.0, 2.25], rel=0.15)
    else:
        assert spreads == pytest.approx([1.0] * expected, rel=0.3)


def spread_within(problem: ClusteringProblem, label: int) -> float:
    """The mean variance of a coordinate within a cloud, over all instances."""
    assert problem.labels is not None
    squares, count = 0.0, 0
    for x, labels in zip(problem.x, problem.labels, strict=True):
        own = x[labels == label]
        if len(own) > 1:
            squares += float((own - own.mean(dim=0)).square().sum()) / 2
            count += len(own) - 1
    return squares / count


def test_the_bayes_rule_errs_as_its_integral_says() -> None:
    law = GaussianMixture(d=2, n=50)
    problem, centres = clouds.draw_triangle(law, 4.0, 400, make_generator())
    distances = torch.cdist(centres, centres)[:, 0, 1]
    torch.testing.assert_close(distances, torch.full_like(distances, 4.0))
    wrong = clouds.score_instances(clouds.label_by_bayes(problem, centres), problem)["wrong"]
    # Between Φ(−2) for one other cloud and twice that for two.
    assert 0.0228 < float(wrong.mean()) < 0.0455


def test_scores_of_instances_are_scikit_learns() -> None:
    problem = GaussianMixture(d=2, n=20).sample(4, generator=make_generator())
    found = torch.randint(3, (4, 20), generator=make_generator())
    scores = clouds.score_instances(found, problem)
    assert problem.labels is not None
    pairs = list(zip(problem.labels, found, strict=True))
    expected = [adjusted_rand_score(a, b) for a, b in pairs]
    np.testing.assert_allclose(scores["ari"].numpy(), expected, atol=1e-12)
    expected = [normalized_mutual_info_score(a, b) for a, b in pairs]
    np.testing.assert_allclose(scores["nmi"].numpy(), expected, atol=1e-12)


def test_a_missing_encoder_is_refused() -> None:
    with pytest.raises(FileError, match=r"unlabelled/pca-none\.safetensors are not here"):
        load_encoder("pca", "pca-none", {})


def test_pools_are_trained_for_each_size_and_seed() -> None:
    settings = {"d": 2, "n": 4, "width": 8, "hidden": 4, "batch": 4, "steps": 2}

    def measure(network: TrainedEncoder, problem: object) -> float:
        return float(network.recipe.pool or 0) + len(getattr(problem, "x", ())) / 1e6

    rows = train_on_pools("pca", settings, [2, 0], [0, 1], measure)
    assert [(row["pool"], row["seed"]) for row in rows] == [(2, 0), (0, 0), (2, 1), (0, 1)]
    assert rows[0]["risk"] == pytest.approx(2 + 1000 / 1e6)
    assert rows[0]["risk on the pool"] == pytest.approx(2 + 2 / 1e6)
    assert rows[0]["least risk on the pool"] == pytest.approx(0 + 2 / 1e6), "of all networks"
    assert rows[1]["risk on the pool"] == rows[1]["risk"], "without a pool"


def test_the_risk_on_a_pool_is_that_of_the_instances_trained_on() -> None:
    """Every instance of a training batch is among those whose risk is measured."""
    settings = {"d": 2, "n": 4, "width": 8, "hidden": 4, "batch": 64, "steps": 1}
    drawn = []

    def measure(network: TrainedEncoder, problem: Any) -> float:
        batch = network.recipe.build_objective().draw(torch.Generator().manual_seed(3))
        drawn.append((batch.x.unique(dim=0), problem.x.unique(dim=0)))
        return 0.0

    train_on_pools("pca", settings, [5], [7], measure)
    torch.testing.assert_close(*drawn[1], rtol=0, atol=0)
