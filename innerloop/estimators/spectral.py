"""Principal components and spectral clustering by transformers that run the power method."""

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
"""The largest sizes and numbers of steps of the two estimators."""
MOST = 10.0
"""The construction accepts ‖Av‖ up to this; data are scaled so that λmax is half of it."""


class _SpectralEstimator(BaseEstimator):
    """Base class that centres points, scales their covariance and pads them with rows of zeros."""

    steps: int | str
    tolerance: float
    random_state: Any

    def _read_points(self, X: Any) -> np.ndarray:
        check_number("tolerance", self.tolerance, 1.0)
        X = read_data(self, X, ensure_min_samples=2)
        if X.shape[1] > MAX_FEATURES or len(X) > MAX_POINTS:
            raise OutOfRangeError(
                f"{type(self).__name__} accepts up to {MAX_POINTS:,} samples of {MAX_FEATURES} "
                f"features, got {X.shape}: the transformer holds the covariance in its tokens"
            )
        return X

    def _prepare(self, X: np.ndarray, components: int) -> tuple[PCAProblem, np.ndarray]:
        """Return the scaled problem with start vectors, and the eigenvalues of its covariance."""
        mean = (X - X[0]).mean(axis=0)  # differences are exact, even if the mean is large
        self.mean_, rows = X[0] + mean, X - X[0] - mean
        d = max(2, X.shape[1])
        size = round_up(max(len(X), d), most=MAX_POINTS)
        padded = np.zeros((size, d))
        padded[: len(X), : X.shape[1]] = rows
        values = np.linalg.eigvalsh(padded.T @ padded / size)[::-1].clip(0.0)
        # Constant data have no scale: use 1.
        self._unit = math.sqrt(2 * values[0] / MOST) or 1.0
        generator = check_random_state(self.random_state)
        start = generator.normal(size=(components, d))
        start /= np.linalg.norm(start, axis=1, keepdims=True)
        problem = PCAProblem(torch.tensor(padded / self._unit), torch.tensor(start))
        return problem, values / self._unit**2

    def _check_spread(self, values: np.ndarray, components: int) -> float:
        """Return the least ‖Av‖ for the construction.

        Raise an error if the last component has too little variance.
        """
        smallest = float(values[components - 1])
        if smallest < 2e-5 * float(values[0]) or values[0] == 0:
            share = smallest / float(values[0]) if values[0] > 0 else 0.0
            raise OutOfRangeError(
                f"component {components} has {share:.1g} of the first one's variance, at least "
                "2e-5 is needed: take fewer components, or scale the features"
            )
        return 10.0 ** max(-6, math.floor(math.log10(smallest / 50)))


def count_power_steps(first: float, second: float, tolerance: float, d: int) -> float:
    """Return how many power iterations bring a random start to within an angle `tolerance`.

    `first` and `second` are the largest eigenvalue and the next.
    """
    if second <= 0:
        return 2
    if second >= first * (1 - 1e-12):
        return math.inf
    return max(2, math.ceil(math.log(10 * math.sqrt(d) / tolerance) / math.log(first / second)))


class TransformerPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _SpectralEstimator):
    """Compute principal components by a transformer that runs the power method with deflation.

    After fitting, these attributes are set: `layers_` holds the directions after every step.
    `components_`, `mean_`, `explained_variance_` and `explained_variance_ratio_` are those of
    scikit-learn's PCA. `gap_` is the largest ‖Cv − λv‖/λ of the components, `steps_` is the
    number of steps, and `certificate_` is the evidence that the transformer runs the algorithm.

    Args:
        n_components: The number of components; by default as many as the data have. The data may
            have up to 16 features.
        steps: The number of iterations for all components together. "auto" computes it from the
            gaps between the eigenvalues and `tolerance`, up to 1,000.
        tolerance: The largest angle to the true direction, in radians.
        random_state: The seed of the random initial vectors.
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
        """Build and certify the transformer, and run it on the points as its prompt."""
        X = self._read_points(X)
        most = min(len(X) - 1, X.shape[1])
        requested = most if self.n_components is None else self.n_components
        count = check_count("n_components", requested, 1, min(X.shape))
        problem, values = self._prepare(X, count)
        least = self._check_spread(values, count)
        ends = [*values[1:], 0.0]
        needed = count * max(
            count_power_steps(values[k], ends[k], self.tolerance, problem.d) for k in range(count)
        )
        depth = check_steps(self.steps)
        self.steps_ = int(min(needed, MAX_ITERATIONS)) if depth is None else max(depth, count)
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
        """Run the transformer, and set the fitted attributes; warn if too few steps were taken."""
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
        """Return the coordinates of the points along the components."""
        check_is_fitted(self, "components_")
        X = read_data(self, X, reset=False)
        return (X - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the points that have the coordinates X along the components."""
        check_is_fitted(self, "components_")
        return np.asarray(X) @ self.components_ + self.mean_


class TransformerSpectralClustering(ClusterMixin, _SpectralEstimator):
    """Cluster points into two by their side along the first principal direction.

    A transformer computes the direction by the power method. After fitting, these attributes are
    set: `labels_` holds 0 or 1 for each point. `scores_` are the coordinates of the centred points
    along `direction_`, and `layers_` holds them after every step. `certificate_` is the evidence
    that the transformer runs the algorithm.

    Args:
        steps: The number of power iterations. "auto" computes it from the gap between the first two
            eigenvalues and `tolerance`, up to 1,000.
        tolerance: The largest angle to the true direction, in radians.
        random_state: The seed of the random initial vector.
    """

    def __init__(
        self, *, steps: int | str = "auto", tolerance: float = 1e-6, random_state: Any = None
    ) -> None:
        self.steps = steps
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TransformerSpectralClustering:
        """Build and certify the transformer, and run it on the points as its prompt."""
        X = self._read_points(X)
        problem, values = self._prepare(X, 1)
        if values[0] == 0:
            raise InputError("the samples are all the same: there is no direction to cluster by")
        needed = count_power_steps(values[0], values[1], self.tolerance, problem.d)
        depth = check_steps(self.steps)
        self.steps_ = int(min(needed, MAX_ITERATIONS)) if depth is None else depth
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
