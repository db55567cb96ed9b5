"""`solve` agrees with scikit-learn and SciPy, problem by problem, and measures its own errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    Ridge,
    RidgeCV,
    lasso_path,
)
from sklearn.mixture import GaussianMixture

import innerloop
from innerloop import InputError, solve
from innerloop.solving.data import read_problems

Pairs = list[tuple[np.ndarray, np.ndarray]]


def draw_regressions(problems: int = 12, n: int = 30, d: int = 6, seed: int = 0) -> Any:
    """Problems with weights of which some are zero, an intercept, and features with means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(problems, n, d)) @ rng.normal(size=(problems, d, d)) + rng.normal(size=d)
    w = rng.normal(size=(problems, d)) * (rng.random((problems, d)) < 0.6)
    y = np.einsum("pnd,pd->pn", X, w) + 3.0 + rng.normal(size=(problems, n))
    return X, y


def draw_ragged(seed: int = 0, least: int = 3, d: int = 4) -> Pairs:
    """Nine problems of different lengths, the shortest with fewer rows than features."""
    rng = np.random.default_rng(seed)
    sizes = [least, 40, 7, 12, 12, 25, 9, 60, 5]
    return [(rng.normal(size=(n, d)) + 1.0, rng.normal(size=n) + 2.0) for n in sizes]


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "least-squares": (LinearRegression(), {}),
    "ridge": (Ridge(alpha=0.7), {"penalty": 0.7}),
    "lasso": (Lasso(alpha=0.2, tol=1e-12, max_iter=100_000), {"penalty": 0.2}),
    "elastic-net": (
        ElasticNet(alpha=0.3, l1_ratio=0.4, tol=1e-12, max_iter=100_000),
        {"penalty": 0.3, "l1_ratio": 0.4},
    ),
    "nnls": (LinearRegression(positive=True), {"fit_intercept": True}),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ragged", [False, True])
def test_linear_problems_agree_with_scikit_learn(name: str, ragged: bool) -> None:
    model, options = MODELS[name]
    pairs: Pairs = draw_ragged() if ragged else list(zip(*draw_regressions(), strict=True))
    given = (pairs,) if ragged else draw_regressions()
    found = solve(name, *given, tolerance=1e-12, **options)
    for k, (x, y) in enumerate(pairs):
        model.fit(x, y)
        np.testing.assert_allclose(found.coef[k], model.coef_, atol=2e-6)
        np.testing.assert_allclose(found.intercept[k], model.intercept_, atol=5e-6)
    assert found.converged.all()
    assert (found.optimality >= 0).all()


@pytest.mark.parametrize("name", ["least-squares", "ridge", "lasso", "elastic-net"])
def test_without_an_intercept_and_with_sample_weights(name: str) -> None:
    model, options = MODELS[name]
    X, y = draw_regressions(problems=4)
    weight = np.random.default_rng(1).integers(0, 4, size=y.shape).astype(float)
    bare = solve(name, X, y, fit_intercept=False, tolerance=1e-12, **options)
    weighted = solve(name, X, y, sample_weight=weight, tolerance=1e-12, **options)
    for k in range(4):
        model.set_params(fit_intercept=False).fit(X[k], y[k])
        np.testing.assert_allclose(bare.coef[k], model.coef_, atol=1e-6)
        assert bare.intercept[k] == 0
        model.set_params(fit_intercept=True).fit(X[k], y[k], sample_weight=weight[k])
        np.testing.assert_allclose(weighted.coef[k], model.coef_, atol=1e-6)
        np.testing.assert_allclose(weighted.intercept[k], model.intercept_, atol=1e-6)


def test_nnls_agrees_with_scipy() -> None:
    X, y = draw_regressions(problems=20)
    found = solve("nnls", X, y, tolerance=1e-12)
    for k in range(20):
        np.testing.assert_allclose(found.coef[k], nnls(X[k], y[k])[0], atol=1e-8)
    assert (found.coef >= 0).all()
    assert (found.coef == 0).any()


def huber_loss(point: np.ndarray, x: np.ndarray, y: np.ndarray, alpha: float, eps: float) -> float:
    """HuberRegressor's objective, written from its documentation."""
    *w, b, log_scale = point
    scale = np.exp(log_scale)
    z = np.abs(y - x @ w - b) / scale
    rows = np.where(z <= eps, z**2, 2 * eps * z - eps**2)
    return float(np.sum(scale + rows * scale) + alpha * np.sum(np.square(w)))


def test_huber_agrees_with_scikit_learn_and_scipy() -> None:
    X, y = draw_regressions(problems=6, n=40, d=3)
    y[:, ::7] += 50.0  # outliers
    found = solve("huber", X, y, penalty=0.01, epsilon=1.5)
    for k in range(6):
        model: Any = HuberRegressor(alpha=0.01, epsilon=1.5, tol=1e-10, max_iter=10_000).fit(
            X[k], y[k]
        )
        np.testing.assert_allclose(found.coef[k], model.coef_, atol=1e-3)
        np.testing.assert_allclose(found.intercept[k], model.intercept_, atol=1e-3)
        np.testing.assert_allclose(found.scale[k], model.scale_, atol=1e-3)
        point = np.array([*found.coef[k], found.intercept[k], np.log(found.scale[k])])
        ours = huber_loss(point, X[k], y[k], 0.01, 1.5)
        best = minimize(huber_loss, point, args=(X[k], y[k], 0.01, 1.5), options={"gtol": 1e-9})
        assert ours <= best.fun * (1 + 1e-12)
    assert found.converged.all()


@pytest.mark.parametrize("shape", [(5, 30, 4), (5, 4, 9)])
def test_pca_agrees_with_scikit_learn(shape: tuple[int, int, int]) -> None:
    X = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[2] + 1) + 5.0
    found = solve("pca", X, components=3)
    for k in range(shape[0]):
        model: Any = PCA(3, svd_solver="full").fit(X[k])
        np.testing.assert_allclose(found.components[k], model.components_, atol=1e-9)
        np.testing.assert_allclose(found.explained_variance[k], model.explained_variance_)
        np.testing.assert_allclose(found.mean[k], model.mean_)
        ratio = model.explained_variance_ratio_
        np.testing.assert_allclose(found.explained_variance_ratio[k], ratio)
    assert found.converged.all()


def draw_points(problems: int = 6, n: int = 40, d: int = 2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(problems, 3, d))
    return np.stack([c[rng.integers(3, size=n)] for c in centres]) + rng.normal(
        size=(problems, n, d)
    )


def fit_k_means(start: np.ndarray) -> Any:
    """scikit-learn's KMeans from given centres, to its fixed point."""
    settings: dict[str, Any] = {"init": start, "n_init": 1, "tol": 0.0}
    return KMeans(len(start), **settings)


def test_k_means_agrees_with_scikit_learn_from_the_same_start() -> None:
    X = draw_points()
    start = X[:, :4]
    found = solve("k-means", X, clusters=4, start=start)
    for k in range(len(X)):
        model: Any = fit_k_means(start[k]).fit(X[k])
        np.testing.assert_allclose(found.centers[k], model.cluster_centers_, atol=1e-10)
        np.testing.assert_array_equal(found.labels[k], model.labels_)
        np.testing.assert_allclose(found.inertia[k], model.inertia_)
    assert (found.optimality == 0).all()


def test_k_means_moves_an_empty_cluster_as_scikit_learn_does() -> None:
    X = draw_points(problems=3)
    start = np.stack([np.vstack([x[:2], [[100.0, 100.0]], [[200.0, 0.0]]]) for x in X])
    found = solve("k-means", X, clusters=4, start=start)
    for k in range(len(X)):
        model: Any = fit_k_means(start[k]).fit(X[k])
        np.testing.assert_allclose(found.centers[k], model.cluster_centers_, atol=1e-10)


def test_k_means_draws_starts_that_find_separate_clouds() -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0], [30, 0], [0, 30], [30, 30]])
    X = [np.repeat(corners, n, axis=0) + rng.normal(size=(4 * n, 2)) for n in (3, 10, 25)]
    found = solve("k-means", X, clusters=4, restarts=5)
    for x, centres, labels in zip(X, found.centers, found.labels, strict=True):
        assert len(labels) == len(x)
        nearest = np.linalg.norm(corners[:, None] - centres, axis=-1).min(axis=1)
        assert (nearest < 2).all()


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_gaussian_mixtures_agree_with_scikit_learn_from_the_same_start(kind: str) -> None:
    X = draw_points(problems=3, n=60)
    start: dict[str, Any] = {"start": X[:, :3], "start_weights": np.array([0.2, 0.5, 0.3])}
    start["start_covariances"] = np.broadcast_to(2 * np.eye(2), (3, 2, 2))
    found = solve(
        "gaussian-mixture", X, clusters=3, covariance=kind, tolerance=1e-5, max_steps=500, **start
    )
    inverse = {"full": np.stack([np.eye(2) / 2] * 3), "tied": np.eye(2) / 2}
    inverse |= {"diag": np.full((3, 2), 0.5), "spherical": np.full(3, 0.5)}
    for k in range(len(X)):
        model: Any = GaussianMixture(
            3,
            covariance_type=kind,
            weights_init=start["start_weights"],
            means_init=X[k, :3],
            precisions_init=inverse[kind],
            tol=1e-5,
            max_iter=500,
        ).fit(X[k])
        np.testing.assert_allclose(found.means[k], model.means_, atol=1e-8)
        np.testing.assert_allclose(found.weights[k], model.weights_, atol=1e-8)
        np.testing.assert_allclose(found.covariances[k], model.covariances_, atol=1e-8)
        np.testing.assert_allclose(found.responsibilities[k], model.predict_proba(X[k]), atol=1e-8)
        np.testing.assert_allclose(found.log_likelihood[k], model.score(X[k]))
        assert found.steps[k] == model.n_iter_


def test_mixtures_of_regressions_find_the_lines_and_a_stationary_likelihood() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 200, 2))
    lines = np.array([[2.0, -1.0], [-1.0, 3.0]])
    which = rng.random((4, 200)) < 0.3
    y = np.where(which, X @ lines[0] + 1.0, X @ lines[1]) + 0.1 * rng.normal(size=(4, 200))
    found = solve("mixture-of-regressions", X, y, components=2, tolerance=1e-12)
    for k in range(4):
        order = np.argsort(-found.coef[k][:, 0])
        np.testing.assert_allclose(found.coef[k][order], lines, atol=0.1)
        np.testing.assert_allclose(found.intercept[k][order], [1.0, 0.0], atol=0.1)
        np.testing.assert_allclose(found.noise[k], 0.1, atol=0.03)
        np.testing.assert_allclose(found.weights[k][order], [which[k].mean()] * 1 + [0], atol=1)
    parts = [torch.tensor(found[n], requires_grad=True) for n in ("coef", "intercept", "noise")]
    residuals = torch.tensor(y)[..., None] - torch.tensor(X) @ parts[0].mT - parts[1][:, None]
    logs = -0.5 * (residuals / parts[2][:, None, None]) ** 2 - parts[2].log()[:, None, None]
    total = torch.logsumexp(logs + torch.tensor(found.weights).log()[:, None], dim=-1).mean()
    total.backward()
    assert all(part.grad is not None and float(part.grad.abs().max()) < 1e-5 for part in parts)


def test_a_path_and_cross_validation_agree_with_scikit_learn() -> None:
    X, y = draw_regressions(problems=3, n=31)
    path = solve("lasso", X, y, path=7, tolerance=1e-12)
    chosen = solve("lasso", X, y, cv=4, path=20, tolerance=1e-12)
    elastic = solve("elastic-net", X, y, cv=4, path=20, l1_ratio=0.5, tolerance=1e-12)
    ridge = solve("ridge", X, y, cv=4, path=[0.01, 1.0, 100.0])
    assert path.coef.shape == (3, 7, 6)
    for k in range(3):
        x_k, y_k = X[k] - X[k].mean(0), y[k] - y[k].mean()
        find_path: Any = lasso_path
        penalties, weights, _ = find_path(x_k, y_k, alphas=7, tol=1e-12, max_iter=100_000)
        np.testing.assert_allclose(path.penalty[k], penalties)
        np.testing.assert_allclose(path.coef[k], weights.T, atol=1e-6)
        settings: dict[str, Any] = {"alphas": 20, "cv": 4, "tol": 1e-12, "max_iter": 100_000}
        best: Any = LassoCV(**settings).fit(X[k], y[k])
        np.testing.assert_allclose(chosen.penalty[k], best.alpha_)
        np.testing.assert_allclose(chosen.coef[k], best.coef_, atol=1e-6)
        np.testing.assert_allclose(chosen.cv_error[k], best.mse_path_.mean(axis=1), rtol=1e-5)
        best = ElasticNetCV(l1_ratio=0.5, **settings).fit(X[k], y[k])
        np.testing.assert_allclose(elastic.penalty[k], best.alpha_)
        best = RidgeCV([0.01, 1.0, 100.0], cv=4, scoring="neg_mean_squared_error").fit(X[k], y[k])
        assert ridge.penalty[k] == best.alpha_


def test_the_gap_bounds_the_distance_to_the_least_objective() -> None:
    X, y = draw_regressions(problems=10, d=12, n=15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rough = solve("lasso", X, y, penalty=0.05, algorithm="lista-vm", steps=30)
    exact = solve("lasso", X, y, penalty=0.05, tolerance=1e-13)

    def objective(found: Any) -> np.ndarray:
        fitted = np.einsum("pnd,pd->pn", X, found.coef) + found.intercept[:, None]
        loss = 0.5 * np.mean((y - fitted) ** 2, axis=1)
        return loss + 0.05 * np.abs(found.coef).sum(axis=1)

    excess = objective(rough) - objective(exact)
    assert (excess > 1e-10).any()
    assert (excess <= rough.optimality + 1e-12).all()
    assert (rough.optimality[excess > 1e-6] < 100 * excess[excess > 1e-6] + 1).all()


def test_problems_that_miss_the_tolerance_are_named() -> None:
    X, y = draw_regressions(problems=3)
    X[1] = np.vander(np.linspace(1, 1.2, 30), 6)
    with pytest.warns(ConvergenceWarning, match=r"2 of 3 problems converged; not: 1 \(largest dua"):
        found = solve("lasso", X, y, penalty=[0.5, 1e-9, 0.5], max_steps=40)
    assert list(found.failed) == [1]
    assert list(found.converged) == [True, False, True]


def test_the_learned_solver_is_the_network(tmp_path: Any) -> None:
    settings: dict[str, Any] = {"d": 4, "n": 6, "sparsity": 1, "batch": 8, "blocks": 3, "steps": 2}
    run = innerloop.train("lista-vm-learned", folder=tmp_path / "run", **settings)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5, 6, 4)), rng.normal(size=(5, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = solve("lasso", X, y, algorithm=tmp_path / "run", fit_intercept=False, penalty=0.1)
    with torch.no_grad():
        expected = run.model.double()(torch.tensor(X), torch.tensor(y))
    np.testing.assert_allclose(found.coef, expected.numpy(), atol=1e-12)
    with pytest.raises(InputError, match="was trained for d=4 features, these problems have 3"):
        solve("lasso", X[..., :3], y, algorithm=tmp_path / "run")


def test_ista_and_fista_tend_to_the_lasso() -> None:
    X, y = draw_regressions(problems=4, n=60, d=3)
    exact = solve("lasso", X, y, penalty=0.1)
    for algorithm in ("ista", "fista"):
        near = solve("lasso", X, y, penalty=0.1, algorithm=algorithm, steps=3000, tolerance=1e-6)
        np.testing.assert_allclose(near.coef, exact.coef, atol=1e-2)


def test_chunks_tensors_and_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(torch.tensor(x), torch.tensor(y)) for x, y in draw_ragged(least=10)]
    whole = solve("ridge", pairs)
    monkeypatch.setattr("innerloop.solving.data.CHUNK_BYTES", 4000)
    shares: list[float] = []
    cut = solve("ridge", pairs, progress=lambda share, doing="": shares.append(share))
    assert len(shares) > 3
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert isinstance(cut.coef, torch.Tensor)
    torch.testing.assert_close(cut.coef, whole.coef)
    assert len(list(read_problems([x for x, _ in pairs], None, None, None, None).x)) == 9
