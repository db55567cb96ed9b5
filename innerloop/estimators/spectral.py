"""Principal components, and clustering into two by the leading one, by the power method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from innerloop.constructions.base import iterate_streams, read_prediction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.estimators.machine import (
    certify_once,
    check_steps,
    make_construction,
    make_transformer,
    round_up,
    warn_gap,
)
from innerloop.estimators.reading import check_number, read_data
from innerloop.limits import check_count
from innerloop.problems.principal_components import PCAProblem

MAX_FEATURES, MAX_POINTS, MAX_ITERATIONS = 16, 2_000, 1_000
"""Limits of the constructions."""
MOST = 10.0
"""The largest eigenvalue of the scaled covariance is half of this: the top of the built range."""


class _SpectralEstimator(BaseEstimator):
    """Centred points, padded by zero rows to a certified size, with a covariance in range."""

    steps: int | str
    tolerance: float
    random_state: Any

    def _read_points(self, X: Any) -> np.ndarray:
        check_number("tolerance", self.tolerance, 1.0)
        X = read_data(self, X, ensure_min_samples=2)
        if X.shape[1] > MAX_FEATURES or len(X) > MAX_POINTS:
            raise OutOfRangeError(
                f"{type(self).__name__} takes up to {MAX_POINTS:,} samples of {MAX_FEATURES} "
                f"features, got {X.shape}: the transformer holds the covariance in its tokens"
            )
        return X

    def _prepare(self, X: np.ndarray, components: int) -> tuple[PCAProblem, np.ndarray]:
        """Return the scaled problem with start vectors, and the eigenvalues of its covariance."""
        mean = (X - X[0]).mean(axis=0)  # differences are exact where an offset is large
        self.mean_, rows = X[0] + mean, X - X[0] - mean
        d = max(2, X.shape[1])
        size = round_up(max(len(X), d), most=MAX_POINTS)
        padded = np.zeros((size, d))
        padded[: len(X), : X.shape[1]] = rows
        values = np.linalg.eigvalsh(padded.T @ padded / size)[::-1].clip(0.0)
        # A constant data set has no direction: any will do.
        self._unit = math.sqrt(2 * values[0] / MOST) or 1.0
        generator = check_random_state(self.random_state)
        start = generator.normal(size=(components, d))
        start /= np.linalg.norm(start, axis=1, keepdims=True)
        problem = PCAProblem(torch.tensor(padded / self._unit), torch.tensor(start))
        return problem, values / self._unit**2

    def _check_spread(self, values: np.ndarray, components: int) -> float:
        """Return the least ‖Av‖ to build for; refuse components that have no variance."""
        smallest = float(values[components - 1])
        if smallest < 2e-5 * float(values[0]) or values[0] == 0:
            share = smallest / float(values[0]) if values[0] > 0 else 0.0
            raise OutOfRangeError(
                f"component {components} has {share:.1g} of the first one's variance, at least "
                "2e-5 is needed: take fewer components, or scale the features"
            )
        return 10.0 ** max(-6, math.floor(math.log10(smallest / 50)))


def count_power_steps(first: float, second: float, tolerance: float, d: int) -> float:
    """Steps until a random start is within `tolerance` of the direction, by two eigenvalues."""
    if second <= 0:
        return 2
    if second >= first * (1 - 1e-12):
        return math.inf
    return max(2, math.ceil(math.log(10 * math.sqrt(d) / tolerance) / math.log(first / second)))


class TransformerPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _SpectralEstimator):
    """Principal components by a transformer that runs the power method with deflation.

    After fitting, `layers_` holds the directions after every step, `components_`, `mean_`,
    `explained_variance_` and `explained_variance_ratio_` are PCA's, `gap_` is the largest ‖Cv − λv‖
    over λ, and `certificate_` the evidence.

    Args:
        n_components: How many directions; all of them if None (up to 16 features).
        steps: Iterations of all components together, or "auto": what the gaps between the
            eigenvalues need for `tolerance`, at most 1,000.
        tolerance: Largest angle to the true direction, in radians.
        random_state: Seed of the starting vectors.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        steps: int | str = "auto",
        tolerance: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.steps = steps
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TransformerPCA:
        """Run the transformer over the points."""
        X = self._read_points(X)
        most = min(len(X) - 1, X.shape[1])
        wanted = most if self.n_components is None else self.n_components
        count = check_count("n_components", wanted, 1, min(X.shape))
        problem, values = self._prepare(X, count)
        least = self._check_spread(values, count)
        ends = [*values[1:], 0.0]
        needed = count * max(
            count_power_steps(values[k], ends[k], self.tolerance, problem.d) for k in range(count)
        )
        given = check_steps(self.steps)
        self.steps_ = int(min(needed, MAX_ITERATIONS)) if given is None else max(given, count)
        self._construction: Any = make_construction(
            "pca",
            d=problem.d,
            n=problem.n,
            components=count,
            steps=self.steps_,
            knots=2000,
            least=least,
            most=MOST,
        )
        self.certificate_ = certify_once(
            self._construction, steps=min(self.steps_, 2 * count), least=1e-6
        )
        algorithm = self._construction.algorithm
        self.transformer_ = make_transformer(
            self._construction, lambda k: algorithm.component_at(count, k)
        )
        self._run(X, problem, needed)
        return self

    def _run(self, X: np.ndarray, problem: PCAProblem, needed: float) -> None:
        layers = []
        with torch.no_grad():
            for stream in iterate_streams(self._construction, self.transformer_, problem):
                vectors = read_prediction(self._construction, self.transformer_, problem, stream)
                layers.append(vectors.numpy()[:, : X.shape[1]].copy())
        self.layers_ = np.stack(layers)
        vectors = layers[-1] / np.linalg.norm(layers[-1], axis=1, keepdims=True)
        signs = np.sign(vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)])
        self.components_ = vectors * signs[:, None]
        covariance = np.atleast_2d(np.cov(X - X[0], rowvar=False))
        products = self.components_ @ covariance
        self.explained_variance_ = (products * self.components_).sum(axis=1)
        total = float(np.trace(covariance))
        self.explained_variance_ratio_ = self.explained_variance_ / total
        residual = products - self.explained_variance_[:, None] * self.components_
        sizes = np.linalg.norm(residual, axis=1) / self.explained_variance_
        self.gap_ = float(sizes.max())
        self._n_features_out = len(self.components_)
        if needed > self.steps_:
            what = "the largest ‖Cv − λv‖ over λ"
            warn_gap(type(self).__name__, self.steps_, needed, self.gap_, what)

    def transform(self, X: Any) -> np.ndarray:
        """Project points onto the directions."""
        check_is_fitted(self, "components_")
        X = read_data(self, X, reset=False)
        return (X - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the points with these coordinates."""
        check_is_fitted(self, "components_")
        return np.asarray(X) @ self.components_ + self.mean_


class TransformerSpectralClustering(ClusterMixin, _SpectralEstimator):
    """Two clusters by the sign of the leading direction, by a transformer.

    After fitting, `labels_` are 0 and 1, `scores_` the points' places along `direction_`, `layers_`
    the scores after every step, and `certificate_` the evidence.

    Args:
        steps: Power iterations, or "auto": what the gap between the first two eigenvalues needs for
            `tolerance`, at most 1,000.
        tolerance: Largest angle to the true direction, in radians.
        random_state: Seed of the starting vector.
    """

    def __init__(
        self, *, steps: int | str = "auto", tolerance: float = 1e-6, random_state: Any = None
    ) -> None:
        self.steps = steps
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TransformerSpectralClustering:
        """Run the transformer over the points."""
        X = self._read_points(X)
        problem, values = self._prepare(X, 1)
        if values[0] == 0:
            raise InputError("the samples are all the same: there is no direction to cluster by")
        needed = count_power_steps(values[0], values[1], self.tolerance, problem.d)
        given = check_steps(self.steps)
        self.steps_ = int(min(needed, MAX_ITERATIONS)) if given is None else given
        self._construction: Any = make_construction(
            "spectral-clustering",
            d=problem.d,
            n=problem.n,
            steps=self.steps_,
            knots=1000,
            least=1e-3,
            most=100.0,
        )
        self.certificate_ = certify_once(self._construction)
        self.transformer_ = make_transformer(self._construction)
        layers, stream = [], torch.empty(0)
        with torch.no_grad():
            for stream in iterate_streams(self._construction, self.transformer_, problem):
                read = read_prediction(self._construction, self.transformer_, problem, stream)
                layers.append(read[: len(X), 0].numpy() * self._unit)
            direction = self._construction.layout.read(stream, "v")[0, 0].numpy()
        direction = direction[: X.shape[1]] / np.linalg.norm(direction)
        sign = np.sign(direction[np.abs(direction).argmax()])
        self.direction_ = direction * sign
        self.layers_ = np.stack(layers) * sign
        self.scores_ = self.layers_[-1]
        self.labels_ = (self.scores_ > 0).astype(int)
        if needed > self.steps_:
            gap = float(np.abs(self.layers_[-1] - self.layers_[-2]).max())
            warn_gap(type(self).__name__, self.steps_, needed, gap, "the last move of a score")
        return self
