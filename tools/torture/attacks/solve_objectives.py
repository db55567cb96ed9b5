"""Hard problems for `solve`: no answer may be worse than another library's without saying so.

An answer that is reported as not converged counts as refused.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.cluster import KMeans
from sklearn.linear_model import ElasticNet, HuberRegressor
from sklearn.mixture import GaussianMixture

import innerloop
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.drawing import draw
from tools.torture.regressions import Rows, draw_rows, find_least_squares

SLACK = 1e-7
"""The share of the labels' sum of squares by which an objective may exceed the best one."""
EPSILON, RATIO = 1.35, 0.5
"""Options of Huber regression and of the elastic net."""
CASES = st.fixed_dictionaries(
    {
        "rows": draw_rows(st.integers(1, 30), st.integers(1, 6)),
        "penalty": st.sampled_from([1e-6, 1e-2, 1.0, 100.0]),
        "fit_intercept": st.booleans(),
        "clusters": st.integers(1, 4),
    }
)


def prepare(folder: Path) -> None:
    """Return None: the tries have no data in common."""


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Solve one problem, and compare the objective."""
    name = chance.choice(sorted(CHECKS))
    case = draw(CASES, chance)

    def call() -> Verdict:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return CHECKS[name](name, **case)

    return refuse_or(call)


def solve(name: str, rows: Rows, labelled: bool, **options: Any) -> Any:
    """Solve one problem; return None if it is reported as not converged."""
    data: dict[str, Any] = {} if rows.weight is None else {"sample_weight": rows.weight}
    solution = innerloop.solve(name, rows.x, rows.y if labelled else None, **data, **options)
    return solution if solution.converged.all() else None


def compare(name: str, own: float, best: float, slack: float) -> Verdict:
    """Check that an objective is not larger than another one."""
    if not own <= best + slack:
        raise Defect(f"{name}: an objective above another library's is reported as converged")
    return "survived"


def check_least_squares(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare least squares and ridge with LAPACK on columns of one length."""
    ridge = name == "ridge"
    options = {"penalty": penalty} if ridge else {}
    solution = solve(name, rows, True, fit_intercept=fit_intercept, **options)
    if solution is None:
        return "refused"
    residuals, rounding = rows.find_residuals(solution.coef[0], solution.intercept[0])
    share = penalty if ridge else 0.0
    best = find_least_squares(rows, fit_intercept, share)
    own = np.sqrt(np.sum(residuals**2) + share * np.sum(solution.coef[0] ** 2))
    slack = SLACK * float(np.sum(rows.centre(fit_intercept)[1] ** 2))
    own = max(float(own) - float(np.linalg.norm(rounding)), 0.0)
    return compare(name, own**2, best**2, slack)


def check_lasso(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare the lasso and the elastic net with scikit-learn's coordinate descent."""
    ratio = 1.0 if name == "lasso" else RATIO
    x, y = rows.centre(fit_intercept)
    total = rows.weights.sum()
    penalty = penalty * float(np.abs(x.T @ y).max()) / total or 1.0
    options = {} if name == "lasso" else {"l1_ratio": ratio}
    solution = solve(name, rows, True, penalty=penalty, fit_intercept=fit_intercept, **options)
    if solution is None:
        return "refused"

    def measure(coef: np.ndarray, residuals: np.ndarray) -> float:
        lengths = ratio * np.abs(coef).sum() + 0.5 * (1 - ratio) * np.sum(coef**2)
        return float(0.5 * np.sum(residuals**2) / total + penalty * lengths)

    scaled = np.sqrt(len(y) / total)
    other: Any = ElasticNet(penalty, l1_ratio=ratio, fit_intercept=False, tol=1e-10, max_iter=5000)
    other.fit(x * scaled, y * scaled)
    residuals, rounding = rows.find_residuals(solution.coef[0], solution.intercept[0])
    own = measure(solution.coef[0], np.maximum(np.abs(residuals) - rounding, 0.0))
    best = measure(other.coef_, y - x @ other.coef_)
    return compare(name, own, best, SLACK * 0.5 * float(y @ y) / total)


def check_nnls(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare non-negative least squares with SciPy, on columns of one length."""
    solution = solve(name, rows, True, fit_intercept=fit_intercept)
    if solution is None:
        return "refused"
    x, y = rows.centre(fit_intercept)
    length = np.linalg.norm(x, axis=0)
    flat = length <= 1e-15 * np.linalg.norm(rows.x * np.sqrt(rows.weights)[:, None], axis=0)
    x = np.where(flat, 0.0, x / np.where(flat, 1.0, length))
    size = float(np.linalg.norm(y)) or 1.0
    try:
        best = float(nnls(x, y / size)[1]) * size
    except RuntimeError:  # SciPy's limit of iterations
        return "survived"
    residuals, rounding = rows.find_residuals(solution.coef[0], solution.intercept[0])
    if (solution.coef < 0).any():
        raise Defect("nnls: a weight is negative")
    slack = 1e-4 * float(np.linalg.norm(y)) + float(np.linalg.norm(rounding))
    return compare(name, float(np.linalg.norm(residuals)), best, slack)


def check_huber(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare Huber regression with scikit-learn's, if that converges."""
    solution = solve(name, rows, True, penalty=penalty, fit_intercept=fit_intercept)
    if solution is None:
        return "refused"

    def measure(coef: np.ndarray, intercept: float, scale: float) -> float:
        residuals = np.abs(rows.y - rows.x @ coef - intercept)
        outside = 2 * EPSILON * residuals - EPSILON**2 * scale
        losses = np.where(residuals <= EPSILON * scale, residuals**2 / scale, outside)
        return float(np.sum(rows.weights * (scale + losses)) + penalty * np.sum(coef**2))

    other: Any = HuberRegressor(
        alpha=penalty, epsilon=EPSILON, fit_intercept=fit_intercept, tol=1e-8, max_iter=1000
    )
    try:
        other.fit(rows.x, rows.y, rows.weight)
    except ValueError:  # its line search fails on hard scales
        return "survived"
    if not other.scale_ > 0:
        return "survived"
    own = measure(solution.coef[0], solution.intercept[0], solution.scale[0])
    best = measure(other.coef_, other.intercept_, other.scale_)
    rounding = rows.find_residuals(solution.coef[0], solution.intercept[0])[1]
    roots = np.sqrt(rows.weights)
    spread = float(np.abs(rows.centre(fit_intercept)[1]) @ roots)
    # An exact fit has the objective n σ with the least σ that a library allows.
    least = 1e-7 * float(rows.weights @ np.abs(rows.y))
    slack = 1e-6 * spread + least + 10 * float(rounding @ roots)
    return compare(name, own, best, slack)


def check_pca(name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int) -> Verdict:
    """Compare principal components with the singular values of rows centred in extended
    precision.
    """
    rows = Rows(rows.x, rows.y, None)
    count = min(clusters, *rows.x.shape)
    solution = solve(name, rows, False, components=count)
    if solution is None:
        return "refused"
    x = rows.centre(True)[0]
    vectors = solution.components[0]
    if np.abs(vectors @ vectors.T - np.eye(count)).max() > 1e-8 and np.abs(x).max() > 0:
        raise Defect("pca: components are not orthonormal")
    best = np.linalg.svd(x, compute_uv=False)[:count]
    own, best = float(np.sum((x @ vectors.T) ** 2)), float(np.sum(best**2))
    return compare(name, -own, -best, 1e-9 * best)


def check_k_means(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare k-means with scikit-learn's from the same start."""
    clusters = min(clusters, int((rows.weights > 0).sum()))
    start = rows.x[rows.weights > 0][:clusters]
    solution = solve(name, rows, False, clusters=clusters, start=start)
    if solution is None:
        return "refused"
    settings: dict[str, Any] = {"init": start, "n_init": 1, "tol": 0.0}
    other: Any = KMeans(clusters, **settings).fit(rows.x, sample_weight=rows.weight)

    def measure(centres: np.ndarray) -> float:
        apart = ((rows.x[:, None] - centres) ** 2).sum(axis=-1).min(axis=1)
        return float(np.sum(rows.weights * apart))

    x = rows.centre(True)[0]
    return compare(
        name,
        measure(solution.centers[0]),
        measure(other.cluster_centers_),
        1e-7 * float(np.sum(x**2)),
    )


def check_mixture(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare a mixture of Gaussians with scikit-learn's from the same start."""
    clusters = min(clusters, len(rows.x))
    if len(rows.x) < 2:
        return "survived"
    spread = rows.centre(True)[0] / np.sqrt(rows.weights.clip(1e-200))[:, None]
    x = spread / np.where(spread.std() > 0, spread.std(), 1.0)
    start = x[:clusters]
    common: dict[str, Any] = {"weights": np.full(clusters, 1 / clusters)}
    solution = solve(
        name,
        Rows(x, rows.y, None),
        False,
        clusters=clusters,
        covariance="diag",
        start=start,
        start_weights=common["weights"],
        start_covariances=np.stack([np.eye(x.shape[1])] * clusters),
        max_steps=500,
    )
    if solution is None:
        return "refused"
    other: Any = GaussianMixture(
        clusters,
        covariance_type="diag",
        means_init=start,
        weights_init=common["weights"],
        precisions_init=np.ones((clusters, x.shape[1])),
        tol=1e-6,
        max_iter=500,
    )
    try:
        other.fit(x)
    except ValueError:  # a component lost all of its points
        return "survived"
    return compare(name, -float(solution.log_likelihood[0]), -float(other.score(x)), 1e-3)


def check_lines(
    name: str, rows: Rows, penalty: float, fit_intercept: bool, clusters: int
) -> Verdict:
    """Compare a mixture of one line with least squares."""
    rows = Rows(rows.x, rows.y, None)
    solution = solve(name, rows, True, components=1, fit_intercept=fit_intercept)
    if solution is None:
        return "refused"
    residuals, rounding = rows.find_residuals(solution.coef[0, 0], solution.intercept[0, 0])
    slack = 1e-3 * np.linalg.norm(rows.centre(fit_intercept)[1]) + np.linalg.norm(rounding)
    best = find_least_squares(rows, fit_intercept)
    return compare(name, float(np.linalg.norm(residuals)), best, float(slack))


CHECKS: dict[str, Callable[..., Verdict]] = {
    "least-squares": check_least_squares,
    "ridge": check_least_squares,
    "lasso": check_lasso,
    "elastic-net": check_lasso,
    "nnls": check_nnls,
    "huber": check_huber,
    "pca": check_pca,
    "k-means": check_k_means,
    "gaussian-mixture": check_mixture,
    "mixture-of-regressions": check_lines,
}
ATTACKS = (Attack("solve-objectives", 10_000, prepare, attempt, sample=20, cost=0.03),)
