"""Estimators are scikit-learn's in form, and in numbers where it has the same algorithm."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas
import pytest
import sklearn.datasets
import torch
from sklearn import base
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import innerloop
from innerloop import (
    InputError,
    OutOfRangeError,
    TransformerGaussianMixture,
    TransformerKMeans,
    TransformerLasso,
    TransformerPCA,
    TransformerRegressor,
    TransformerSpectralClustering,
)
from innerloop.estimators import machine

datasets: Any = sklearn.datasets
clone: Any = base.clone
pytestmark = pytest.mark.usefixtures("law_alone")
ESTIMATORS = [
    TransformerRegressor(),
    TransformerLasso(),
    TransformerPCA(1, steps=10),
    TransformerKMeans(),
    TransformerGaussianMixture(3),
    TransformerSpectralClustering(steps=10),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_scikit_learns_own_checks_pass(estimator: Any) -> None:
    """All of them: no expected failures are declared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 35


@pytest.mark.parametrize("algorithm", ["newton", "relu-newton", "gd-plus-plus"])
def test_regression_on_diabetes_agrees_with_linear_regression(algorithm: str) -> None:
    X, y = datasets.load_diabetes(return_X_y=True)
    model: Any = TransformerRegressor(algorithm).fit(X[:300], y[:300])
    other = LinearRegression().fit(X[:300], y[:300])
    np.testing.assert_allclose(model.predict(X[300:]), other.predict(X[300:]), atol=1e-6)
    assert model.certificate_.holds
    assert model.layers_.shape == (model.steps_ + 1, 300)
    np.testing.assert_array_equal(model.layers_[-1], model.predict(X[:300]))
    np.testing.assert_allclose(model.layers_[0], y[:300].mean(), atol=1e3)
    assert model.gap_ < 1e-8


def test_the_depth_follows_the_conditioning_and_a_gap_is_told() -> None:
    rng = np.random.default_rng(0)
    easy = rng.normal(size=(60, 3))
    hard = easy @ np.array([[1.0, 1.0, 1.0], [0.0, 0.07, 0.0], [0.0, 0.0, 0.07]])
    y = rng.normal(size=60)
    depths = [TransformerRegressor().fit(x, y).steps_ for x in (easy, hard)]
    assert depths[0] < depths[1]
    with pytest.warns(
        ConvergenceWarning, match=r"the data need [\d,]+ steps, 1,000 were taken; th"
    ):
        slow = TransformerRegressor("gradient-descent").fit(hard, y)
    assert slow.steps_ == 1000
    other = LinearRegression().fit(hard, y).predict(hard)
    gap = np.sqrt(np.mean((slow.predict(hard) - other) ** 2)) / y.std()
    np.testing.assert_allclose(slow.gap_, gap, rtol=1e-6)
    quick = TransformerRegressor("gradient-descent").fit(easy, y)
    np.testing.assert_allclose(
        quick.predict(easy), LinearRegression().fit(easy, y).predict(easy), atol=1e-6
    )


def test_regression_with_weights_without_intercept_and_at_huge_scales() -> None:
    """scikit-learn sees features of one scale: its own solver drops those that are far smaller."""
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = X[:100], y[:100] * 1e8
    scales = np.logspace(-9, 9, 10)
    weight = np.random.default_rng(0).integers(0, 3, size=100)
    weighted = TransformerRegressor().fit(X * scales, y, sample_weight=weight)
    expected = LinearRegression().fit(X, y, sample_weight=weight).predict(X)
    np.testing.assert_allclose(weighted.predict(X * scales), expected, rtol=1e-6)
    bare = TransformerRegressor(fit_intercept=False).fit(X * scales, y)
    expected = LinearRegression(fit_intercept=False).fit(X, y).predict(X)
    np.testing.assert_allclose(bare.predict(X * scales), expected, rtol=1e-6)


def test_edges_constant_collinear_short_and_single() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    wide = np.column_stack([X, X[:, 0] + X[:, 1], np.full(20, 7.0)])  # collinear and constant
    for rows, labels in ((wide, y), (wide[:3], y[:3]), (wide[:1], y[:1])):
        model = TransformerRegressor().fit(rows, labels)
        expected = LinearRegression().fit(rows, labels).predict(rows)
        np.testing.assert_allclose(model.predict(rows), expected, atol=1e-6)
    with pytest.raises(ValueError, match="NaN"):
        TransformerRegressor().fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="could not convert string"):
        TransformerRegressor().fit(np.array([["a", "b"], ["c", "d"]]), [1.0, 2.0])
    with pytest.raises(InputError, match="did you mean 'newton'"):
        TransformerRegressor("newtom").fit(X, y)


@pytest.mark.parametrize("algorithm", ["newton", "relu-newton", "gd-plus-plus"])
def test_ill_conditioned_columns_reach_least_squares(algorithm: str) -> None:
    """A polynomial on [0, 1], a cubic in the year: scikit-learn drops directions of the latter."""
    t, years = np.linspace(0, 1, 40), np.arange(1950.0, 2021.0)
    noise = np.random.default_rng(0).normal(size=71)
    for X, y in (
        (np.stack([t**k for k in range(1, 9)], axis=1), np.sin(12 * t)),
        (np.stack([years, years**2, years**3], axis=1), np.sin((years - 1950) / 9) + 0.3 * noise),
    ):
        model = TransformerRegressor(algorithm).fit(X, y)
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        basis = np.linalg.svd(scaled, full_matrices=False)[0]
        exact = basis @ (basis.T @ (y - y.mean())) + y.mean()
        np.testing.assert_allclose(model.predict(X), exact, atol=1e-6)
        assert model.score(X, y) > LinearRegression().fit(X, y).score(X, y) - 1e-9
        assert model.gap_ < 1e-7


def test_columns_of_large_offset_are_used_and_flat_ones_are_named() -> None:
    rng = np.random.default_rng(0)
    moments = 1.6e15 + 2.0 * np.arange(50.0)  # microseconds
    X = np.stack([moments, rng.normal(size=50)], axis=1)
    model = TransformerRegressor().fit(X, 0.3 * (moments - 1.6e15))
    assert model.score(X, 0.3 * (moments - 1.6e15)) == pytest.approx(1.0, abs=1e-12)
    X[:, 0] = 0.1 + np.spacing(0.1) * (np.arange(50) % 2)
    frame = pandas.DataFrame(X, columns=["flat", "noise"])
    with pytest.warns(UserWarning, match="flat cannot be told from a constant"):
        model = TransformerRegressor().fit(frame, X[:, 0])
    for weight in (np.full(50, 1e308), np.full(50, 1e-310), np.full(50, 1e-320)):
        weighted = TransformerRegressor().fit(X[:, 1:], moments - 1.6e15, sample_weight=weight)
        plain = TransformerRegressor().fit(X[:, 1:], moments - 1.6e15)
        np.testing.assert_allclose(weighted.predict(X[:, 1:]), plain.predict(X[:, 1:]))


def test_rows_of_tiny_weight_decide_what_heavy_rows_leave_open() -> None:
    """Two heavy rows and three coefficients: scikit-learn drops what the light rows determine."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(8, 2)), rng.normal(size=8)
    weight = np.array([1e8, 1e8, *[1e-8] * 6])
    rows = np.column_stack([X, np.ones(8)])
    # The light rows decide along the one direction in which the heavy rows do not change.
    through = np.linalg.lstsq(rows[:2], y[:2], rcond=None)[0]
    free = np.linalg.svd(rows[:2])[2][2]
    along = rows[2:] @ free
    coef = through + free * (along @ (y[2:] - rows[2:] @ through)) / (along @ along)
    model = TransformerRegressor().fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X), rows @ coef, atol=1e-9)
    other = LinearRegression().fit(X, y, sample_weight=weight).predict(X)
    assert np.abs(other - rows @ coef).max() > 0.1


def test_shares_of_a_mixture_are_off_by_what_the_tolerance_leaves() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 2)) * [1, 2] + rng.integers(0, 2, size=(25, 1)) * 2.0
    distances = []
    for tolerance in (1e-4, 1e-8):
        model = TransformerGaussianMixture(2, init=X[:2], tolerance=tolerance).fit(X)
        means, shares = X[:2], np.empty(0)
        by_step = []
        for _ in range(1000):
            logs = -0.5 * ((X[:, None] - means) ** 2).sum(axis=-1) / model.variance_
            shares = np.exp(logs - logs.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            by_step.append(shares)
            means = shares.T @ X / shares.sum(axis=0)[:, None]
        read = model.predict_proba(X)
        np.testing.assert_allclose(read, by_step[model.steps_], atol=1e-6)
        distances.append(np.abs(read - shares).max())
    assert 1e-6 < distances[0] < 1e-3
    assert distances[1] < 1e-6


def test_lasso_on_diabetes_agrees_with_scikit_learn() -> None:
    X, y = datasets.load_diabetes(return_X_y=True)
    model = TransformerLasso(alpha=1.0, tolerance=1e-9).fit(X[:200], y[:200])
    other = Lasso(alpha=1.0, tol=1e-12, max_iter=100_000).fit(X[:200], y[:200])
    np.testing.assert_allclose(model.predict(X), other.predict(X), atol=0.02)
    np.testing.assert_array_equal(model.coef_ != 0, other.coef_ != 0)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_, rtol=1e-10)
    assert model.dual_gap_ <= 1e-9 * 0.5 * y[:200].var()
    assert model.layers_.shape == (model.steps_ + 1, 10)
    with pytest.warns(ConvergenceWarning, match="the duality gap is"):
        TransformerLasso(alpha=0.01, steps=3).fit(X[:50], y[:50])


def test_pca_on_wine_agrees_with_scikit_learn() -> None:
    X = datasets.load_wine().data
    model = TransformerPCA(2, random_state=0).fit(X)
    other: Any = PCA(2).fit(X)
    np.testing.assert_allclose(
        np.abs(model.components_ @ other.components_.T), np.eye(2), atol=1e-5
    )
    np.testing.assert_allclose(model.explained_variance_, other.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(other.transform(X)), atol=1e-3)
    assert model.layers_.shape == (model.steps_ + 1, 2, 13)
    with pytest.raises(OutOfRangeError, match="up to 2,000 samples of 16 features"):
        TransformerPCA().fit(datasets.load_digits().data)


def test_k_means_on_iris_agrees_from_the_same_start_and_digits_run() -> None:
    X = datasets.load_iris().data
    settings: dict[str, Any] = {"init": X[[0, 60, 120]], "n_init": 1, "tol": 0.0}
    model, other = TransformerKMeans(3, init=X[[0, 60, 120]]).fit(X), KMeans(3, **settings).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, other.cluster_centers_, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    np.testing.assert_allclose(model.transform(X), other.transform(X), atol=1e-10)
    digits = datasets.load_digits().data[:150]
    settings["init"] = digits[:10]
    near = TransformerKMeans(10, init=digits[:10]).fit(digits)
    np.testing.assert_array_equal(near.labels_, KMeans(10, **settings).fit(digits).labels_)


def test_ties_are_broken_with_a_warning() -> None:
    X = np.array([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    with pytest.warns(UserWarning, match="points were moved by up to"):
        model = TransformerKMeans(2, init=X[[0, 3]]).fit(X)
    assert len(set(model.labels_)) == 2


def test_a_mixture_takes_the_e_step_of_scikit_learn() -> None:
    X = datasets.load_iris().data
    model: Any = TransformerGaussianMixture(3, variance=0.2, init=X[[0, 60, 120]], steps=3)
    with pytest.warns(ConvergenceWarning, match="22 steps, 3 were taken; the last move of a cent"):
        model.fit(X)
    other: Any = GaussianMixture(3, covariance_type="spherical")
    other.weights_, other.precisions_cholesky_ = np.full(3, 1 / 3), np.full(3, 0.2**-0.5)
    other.means_ = X[[0, 60, 120]].astype(float)
    for _ in range(3):
        shares = other.predict_proba(X)
        other.means_ = shares.T @ X / shares.sum(axis=0)[:, None]
    np.testing.assert_allclose(model.means_, other.means_, atol=10 * model.certificate_.tolerance)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-4)


def test_spectral_clustering_splits_by_the_first_component() -> None:
    X = datasets.load_iris().data
    model = TransformerSpectralClustering(random_state=0).fit(X)
    scores = PCA(1).fit_transform(X)[:, 0]
    np.testing.assert_allclose(np.abs(model.scores_), np.abs(scores), atol=1e-5)
    same = np.mean(model.labels_ == (scores > 0))
    assert same in (0.0, 1.0)


def test_estimators_work_inside_scikit_learn() -> None:
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = X[:80, :4], y[:80]
    search: Any = GridSearchCV(
        make_pipeline(StandardScaler(), TransformerPCA(2, steps=6), TransformerRegressor()),
        {"transformerregressor__algorithm": ["newton", "gd-plus-plus"]},
        cv=2,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(X, y)
    assert np.isfinite(search.best_score_)
    assert clone(search.best_estimator_[-1]).get_params()["algorithm"] in ("newton", "gd-plus-plus")


def test_a_certificate_that_failed_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed for a passing reason, in another test say, is measured again."""
    X, y = np.eye(3), np.arange(3.0)
    monkeypatch.setattr(machine, "_certificates", {})
    with monkeypatch.context() as patch:
        patch.setattr("innerloop.certification.law._deviation", lambda *_: 1.0)
        with pytest.raises(InputError, match="the certificate of newton fails"):
            TransformerRegressor().fit(X, y)
    assert TransformerRegressor().fit(X, y).certificate_.holds


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (
            TransformerRegressor(tolerance=0),
            "tolerance must be a number above 0 and below 1,",
        ),
        (TransformerRegressor(tolerance=np.nan), "tolerance must be a number above 0 and below 1"),
        (TransformerLasso(np.inf), "alpha must be a number above 0 and finite, got inf"),
        (TransformerLasso(tolerance=0), "tolerance must be"),
        (TransformerPCA(1, tolerance=0), "tolerance must be"),
        (TransformerGaussianMixture(variance=np.inf), "variance must be a number above 0 and fin"),
        (TransformerGaussianMixture(tolerance=np.nan), "tolerance must be"),
        (TransformerKMeans(1, init=[[np.nan] * 2]), "init must hold finite numbers"),
        (TransformerKMeans(1, init=np.ma.masked_equal([[1.0, 2.0]], 1.0)), "1 masked entries"),
    ],
)
def test_options_that_no_estimator_can_use_are_refused(estimator: Any, message: str) -> None:
    X = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(InputError, match=message):
        estimator.fit(X, X[:, 0])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_data_that_would_be_misread_are_refused(estimator: Any) -> None:
    X = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(InputError, match="X has 4 masked entries"):
        estimator.fit(np.ma.masked_array(X, mask=np.arange(18).reshape(9, 2) < 4), X[:, 0])
    with pytest.raises(InputError, match="too large for float64"):
        estimator.fit(np.array([[10**400, 1]] * 9, dtype=object), X[:, 0])
    with pytest.raises(InputError, match="without data, on the device 'meta'"):
        estimator.fit(torch.empty(9, 2, device="meta"), X[:, 0])
    for size in (1e308, 1e155, 1e-170):
        with pytest.raises(InputError, match="X has a largest entry of size"):
            estimator.fit(np.sign(X) * size, X[:, 0])


def test_frames_keep_their_names() -> None:
    frame = pandas.DataFrame(datasets.load_iris().data, columns=["a", "b", "c", "d"])
    model: Any = TransformerKMeans(2, init=frame.to_numpy()[[0, 120]]).fit(frame)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    shown = model.set_output(transform="pandas").transform(frame)
    assert list(shown.columns) == ["transformerkmeans0", "transformerkmeans1"]


def test_a_trained_network_is_an_estimator(tmp_path: Any) -> None:
    settings: dict[str, Any] = {"d": 3, "blocks": 2, "batch": 256, "steps": 60, "n": 20}
    innerloop.train("linear-attention", folder=tmp_path / "run", **settings)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = X @ [1.0, -2.0, 0.5] + 4.0
    model = clone(TransformerRegressor.from_run(tmp_path / "run")).fit(X, y)
    assert model.layers_.shape[1] == 20
    assert model.score(X, y) > 0.5
    with pytest.raises(InputError, match="trained for d=3 features, the data have 4"):
        TransformerRegressor.from_run(tmp_path / "run").fit(rng.normal(size=(9, 4)), y[:9])
