"""Hard data for estimators: no fit may be worse than scikit-learn's or LAPACK's without a warning.

A fit that warns counts as refused.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.linear_model import Lasso

from innerloop.estimators import (
    TransformerGaussianMixture,
    TransformerKMeans,
    TransformerLasso,
    TransformerPCA,
    TransformerRegressor,
    TransformerSpectralClustering,
)
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.drawing import draw
from tools.torture.regressions import Rows, draw_rows, find_least_squares

CASES = st.fixed_dictionaries(
    {
        # Few sizes: each is certified once in a process.
        "rows": draw_rows(st.sampled_from([2, 5, 8, 13, 30]), st.sampled_from([1, 2, 4])),
        "algorithm": st.sampled_from(["newton", "newton", "relu-newton", "gd-plus-plus"]),
        "fit_intercept": st.booleans(),
        "penalty": st.sampled_from([0.01, 0.1, 0.5]),
        "clusters": st.integers(1, 3),
    }
)


def prepare(folder: Path) -> None:
    """Return None: the tries have no data in common."""


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Fit one estimator, and compare its objective with another library's.

    A fit that warns counts as refused.
    """
    check, case = chance.choice(CHECKS), draw(CASES, chance)

    def call() -> Verdict:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            own, best, slack = check(**case)
        if any(not issubclass(each.category, RuntimeWarning) for each in caught):
            return "refused"
        if not own <= best + slack:
            raise Defect(f"{check.__name__}: worse than another library, without a warning")
        return "survived"

    return refuse_or(call)


def check_regressor(
    rows: Rows, algorithm: str, fit_intercept: bool, **other: Any
) -> tuple[float, float, float]:
    """Compare with least squares by LAPACK on columns of one length."""
    model = TransformerRegressor(algorithm, fit_intercept=fit_intercept)
    model.fit(rows.x, rows.y, rows.weight)
    root = np.sqrt(rows.weights)
    own = np.linalg.norm((rows.y - model.predict(rows.x)) * root)
    size = np.linalg.norm(rows.centre(fit_intercept)[1])
    rounding = 1e-13 * np.linalg.norm(rows.y * root)
    return float(own), find_least_squares(rows, fit_intercept), float(1e-6 * size + rounding)


def check_lasso(
    rows: Rows, penalty: float, fit_intercept: bool, **other: Any
) -> tuple[float, float, float]:
    """Compare with scikit-learn's lasso on centred rows."""
    rows = Rows(rows.x, rows.y, None)
    x, y = rows.centre(fit_intercept)
    alpha = penalty * float(np.abs(x.T @ y).max()) / len(y) or 1.0
    model: Any = TransformerLasso(alpha, fit_intercept=fit_intercept).fit(rows.x, rows.y)
    exact: Any = Lasso(alpha, fit_intercept=False, tol=1e-10, max_iter=5000).fit(x, y)

    def measure(coef: np.ndarray, residuals: np.ndarray) -> float:
        return float(0.5 * np.mean(residuals**2) + alpha * np.abs(coef).sum())

    residuals, rounding = rows.find_residuals(model.coef_, model.intercept_)
    own = measure(model.coef_, np.maximum(np.abs(residuals) - rounding, 0.0))
    return own, measure(exact.coef_, y - x @ exact.coef_), 1e-5 * 0.5 * float(np.mean(y**2))


def check_pca(rows: Rows, clusters: int, **other: Any) -> tuple[float, float, float]:
    """Compare the variance along the components with the singular values."""
    count = min(clusters, *rows.x.shape)
    model = TransformerPCA(count, random_state=0).fit(rows.x)
    x = Rows(rows.x, rows.y, None).centre(True)[0]
    best = float(np.sum(np.linalg.svd(x, compute_uv=False)[:count] ** 2))
    return -float(np.sum((x @ model.components_.T) ** 2)), -best, 1e-4 * best


def check_k_means(rows: Rows, clusters: int, **other: Any) -> tuple[float, float, float]:
    """Compare the inertia with scikit-learn's from the same start."""
    clusters = min(clusters, len(rows.x))
    start = rows.x[:clusters]
    model = TransformerKMeans(clusters, init=start).fit(rows.x)
    settings: dict[str, Any] = {"init": start, "n_init": 1, "tol": 0.0}
    exact = KMeans(clusters, **settings).fit(rows.x)
    x = Rows(rows.x, rows.y, None).centre(True)[0]
    return model.inertia_, float(exact.inertia_), 1e-6 * float(np.sum(x**2))


def check_mixture(rows: Rows, clusters: int, **other: Any) -> tuple[float, float, float]:
    """Compare the likelihood with that of EM in NumPy, in as many steps from the same start."""
    clusters = min(clusters, len(rows.x))
    start = rows.x[:clusters]
    model = TransformerGaussianMixture(clusters, init=start).fit(rows.x)
    means, unit = start.copy(), np.sqrt(model.variance_)

    def expect(means: np.ndarray) -> tuple[float, np.ndarray]:
        apart = ((rows.x[:, None] - means) / unit) ** 2
        logs = -0.5 * apart.sum(axis=-1)
        largest = logs.max(axis=1, keepdims=True)
        sums = np.exp(logs - largest).sum(axis=1, keepdims=True)
        shares = np.exp(logs - largest) / sums
        return float(np.mean(largest + np.log(sums))), shares

    for _ in range(model.steps_):
        shares = expect(means)[1]
        means = shares.T @ rows.x / shares.sum(axis=0).clip(1e-300)[:, None]
    best = expect(means)[0]
    return -expect(model.means_)[0], -best, 1e-3 * (1 + abs(best))


def check_split(rows: Rows, **other: Any) -> tuple[float, float, float]:
    """Compare the variance along the direction of the split with the largest possible variance."""
    model = TransformerSpectralClustering(random_state=0).fit(rows.x)
    x = Rows(rows.x, rows.y, None).centre(True)[0]
    best = float(np.linalg.norm(x, 2) ** 2)
    return -float(np.sum((x @ model.direction_) ** 2)), -best, 1e-4 * best


CHECKS: tuple[Callable[..., tuple[float, float, float]], ...] = (
    *(check_regressor,) * 4,
    *(check_lasso,) * 2,
    check_pca,
    check_k_means,
    check_mixture,
    check_split,
)
ATTACKS = (Attack("estimator-fits", 5_000, prepare, attempt, sample=8, cost=0.2),)
