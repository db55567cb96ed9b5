"""Clustering by transformers with softmax attention: k-means and mixtures of Gaussians."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
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

from innerloop.arrays import as_tensor
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.estimators.machine import (
    MAX_STEPS,
    certify_once,
    check_steps,
    make_construction,
    make_transformer,
    round_up,
    warn_gap,
)
from innerloop.estimators.reading import check_number, read_data
from innerloop.limits import check_count
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.solving.data import Samples
from innerloop.solving.starts import draw_far_points

TIE_SHARE = 1e-6
"""To break ties, points are moved by at most half of this share of the largest entry."""
LLOYD_BOUND = 30.0
"""The largest entry of scaled points, and of the random points of certificates."""


class _Clusterer(ClusterMixin, BaseEstimator, ABC):
    """Base class that scales points and centres, and moves the centres by a transformer."""

    steps: int | str
    init: Any
    random_state: Any
    _construction: Construction[Any, Any]

    def _fit_clusters(self, X: Any, clusters: int) -> np.ndarray:
        """Move centres by a certified transformer, set `layers_`, and return the validated X."""
        X = read_data(self, X)
        check_count("the number of clusters", clusters, 1)
        if len(X) < clusters:
            raise InputError(f"n_samples={len(X)} should be >= n_clusters={clusters}")
        start = self._choose_start(X, clusters)
        self._shift = X.mean(axis=0)
        self._unit = self._choose_unit(X, start)
        problem = ClusteringProblem(self._scale(X), self._scale(start))
        try:
            needed, layers = self._run(problem)
        except OutOfRangeError:  # a point has the same distance to two centres
            needed, layers = self._run(self._break_ties(problem))
        self.layers_ = np.stack(layers) * self._unit + self._shift
        self._centres = torch.tensor(layers[-1])
        move = float(np.abs(self.layers_[-1] - self.layers_[-2]).max())
        if needed > self.steps_:
            warn_gap(type(self).__name__, self.steps_, needed, move, "the last move of a centre")
        return X

    def _run(self, problem: ClusteringProblem) -> tuple[int, list[np.ndarray]]:
        """Build, certify and run the transformer.

        Return how many steps the data need, and the centres after every step.
        """
        depth = check_steps(self.steps)
        needed = self._count_steps(problem)
        self.steps_ = min(needed, MAX_STEPS) if depth is None else depth
        self._construction = self._make_construction(problem, self.steps_)
        self.certificate_ = certify_once(self._construction)
        self.transformer_ = make_transformer(self._construction)
        return needed, list(self._stream_centres(problem))

    def _break_ties(self, problem: ClusteringProblem) -> ClusteringProblem:
        """Move every point a little and warn, because the construction does not allow ties."""
        generator = torch.Generator().manual_seed(0)
        noise = torch.rand(problem.x.shape, generator=generator, dtype=torch.float64) - 0.5
        size = TIE_SHARE * float(problem.x.abs().max())
        warnings.warn(
            f"{type(self).__name__}: a point is as near to one centre as to another; points were "
            f"moved by up to {size / 2 * self._unit:.1g} to break ties",
            UserWarning,
            stacklevel=4,
        )
        start = problem.start + size * noise[: problem.clusters].flip(0)
        return ClusteringProblem(problem.x + size * noise, start)

    def _choose_start(self, X: np.ndarray, clusters: int) -> np.ndarray:
        if isinstance(self.init, str):
            if self.init != "k-means++":
                raise InputError(f"init must be k-means++ or an array, got {self.init!r}")
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            samples = Samples(torch.tensor(X)[None], None, None, torch.tensor([0]))
            generator = torch.Generator().manual_seed(seed)
            return draw_far_points(samples, clusters, generator)[0].numpy()
        start = as_tensor(self.init, "init").double().numpy()
        if not np.isfinite(start).all():
            raise InputError("init must hold finite numbers")
        if start.shape != (clusters, X.shape[1]):
            raise InputError(f"init must be {(clusters, X.shape[1])}, got {start.shape}")
        return start

    def _scale(self, X: np.ndarray) -> torch.Tensor:
        return torch.tensor((X - self._shift) / self._unit)

    def _stream_centres(self, problem: ClusteringProblem) -> Iterator[np.ndarray]:
        """Yield the centres after 0, 1, … steps, read from register `mu` of the centroid tokens."""
        with torch.no_grad():
            for stream in iterate_streams(self._construction, self.transformer_, problem):
                centres = self._construction.layout.read(stream, "mu")[problem.n :]
                yield centres.numpy().copy()

    def _check_points(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "certificate_")
        return read_data(self, X, reset=False)

    def _read_shares(self, X: np.ndarray) -> np.ndarray:
        """Return each cluster's share in each point, by the transformer's read-out."""
        parts, most = [], getattr(self._construction, "n")  # noqa: B009
        with torch.no_grad():
            for rows in self._scale(X).split(most):
                problem = ClusteringProblem(rows, self._centres)
                stream = self._construction.encode(problem, self._centres)
                parts.append(
                    read_prediction(self._construction, self.transformer_, problem, stream)
                )
        return torch.cat(parts).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the index of each point's cluster, by the transformer's read-out."""
        return self._read_shares(self._check_points(X)).argmax(axis=1)

    @abstractmethod
    def _choose_unit(self, X: np.ndarray, start: np.ndarray) -> float:
        """Return the length by which points are divided."""

    @abstractmethod
    def _count_steps(self, problem: ClusteringProblem) -> int:
        """Return the number of steps that the algorithm needs for the data."""

    @abstractmethod
    def _make_construction(self, problem: ClusteringProblem, steps: int) -> Construction[Any, Any]:
        """Make the construction for the sizes of the data."""


class TransformerKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Clusterer):
    """Cluster points by k-means, with a transformer that runs Lloyd's algorithm.

    Each layer runs one step. The softmax heads are so sharp that each point attends to its nearest
    centre only. A cluster that loses all of its points moves to the mean of all points, unlike in
    scikit-learn's KMeans. If a point has the same distance to two centres, all points are moved by
    up to a millionth of the largest entry, and a warning is given.

    After fitting, these attributes are set: `layers_` holds the centres after every step.
    `cluster_centers_`, `labels_` and `inertia_` are those of KMeans. `steps_` is the number of
    steps, and `certificate_` the evidence that the transformer runs the algorithm.

    Args:
        n_clusters: The number of clusters.
        init: "k-means++", or an array of the initial centres.
        steps: The number of steps. "auto" continues until no point changes its cluster.
        random_state: The seed of the random initial centres.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        steps: int | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TransformerKMeans:
        """Build and certify the transformer, and run it on the points and initial centres."""
        X = self._fit_clusters(X, self.n_clusters)
        self.cluster_centers_ = self.layers_[-1]
        self._n_features_out = self.n_clusters
        self.labels_ = self._read_shares(X).argmax(axis=1)
        self.inertia_ = float(np.sum((X - self.cluster_centers_[self.labels_]) ** 2))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the distance of each point to each centre."""
        X = self._check_points(X)
        return np.linalg.norm(X[:, None] - self.cluster_centers_, axis=-1)

    def _choose_unit(self, X: np.ndarray, start: np.ndarray) -> float:
        largest = float(np.abs(np.concatenate([X, start]) - X.mean(axis=0)).max())
        return largest / (0.9 * LLOYD_BOUND) or 1.0

    def _count_steps(self, problem: ClusteringProblem) -> int:
        algorithm = make_construction("lloyd").algorithm
        state, members = problem.start, algorithm.predict(problem, problem.start)
        for k in range(1, MAX_STEPS + 1):
            state = algorithm.step(problem, state, k)
            after = algorithm.predict(problem, state)
            if torch.equal(after, members):
                return k
            members = after
        return MAX_STEPS + 1

    def _make_construction(self, problem: ClusteringProblem, steps: int) -> Construction[Any, Any]:
        rounding = 32 * torch.finfo(torch.float64).eps * problem.d * LLOYD_BOUND**2
        margin = max(4 * rounding, 1e-11)
        return make_construction(
            "lloyd",
            d=problem.d,
            n=round_up(problem.n),
            clusters=problem.clusters,
            steps=steps,
            bound=LLOYD_BOUND,
            margin=margin,
            sharpness=60 / margin,
        )


class TransformerGaussianMixture(_Clusterer):
    """Fit the means of a mixture of Gaussians by a transformer that runs EM.

    All components have the same weight and the same variance, which EM does not change. After
    fitting, these attributes are set: `layers_` holds the means after every step, and `means_`
    those after the last. `weights_` and `variance_` are the fixed weights and variance. `labels_`
    holds the most probable component of each point. `steps_` is the number of steps, and
    `certificate_` the evidence that the transformer runs the algorithm.

    Args:
        n_components: The number of components.
        variance: The variance σ² of every feature in every component. "auto" computes the mean
            variance within clusters, which assign each point to its nearest initial mean.
        init: "k-means++", or an array of the initial means.
        steps: The number of steps. "auto" continues until a step moves each coordinate of every
            mean by at most `tolerance` standard deviations.
        tolerance: The largest move of the last step, in standard deviations; see `steps`.
        random_state: The seed of the random initial means.
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        variance: float | str = "auto",
        init: Any = "k-means++",
        steps: int | str = "auto",
        tolerance: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.variance = variance
        self.init = init
        self.steps = steps
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TransformerGaussianMixture:
        """Build and certify the transformer, and run it on the points and initial means."""
        check_number("tolerance", self.tolerance)
        X = self._fit_clusters(X, self.n_components)
        self.means_ = self.layers_[-1]
        self.variance_ = self._unit**2
        self.weights_ = np.full(self.n_components, 1 / self.n_components)
        self.labels_ = self._read_shares(X).argmax(axis=1)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each component for each point, by the read-out."""
        return self._read_shares(self._check_points(X))

    def _choose_unit(self, X: np.ndarray, start: np.ndarray) -> float:
        if not isinstance(self.variance, str):
            return math.sqrt(check_number("variance", self.variance))
        if self.variance != "auto":
            raise InputError(f"variance must be auto or a number, got {self.variance!r}")
        nearest = ((X[:, None] - start) ** 2).sum(axis=-1).argmin(axis=1)
        within = [X[nearest == k] - X[nearest == k].mean(axis=0) for k in np.unique(nearest)]
        spread = float(np.sqrt(np.mean(np.concatenate(within) ** 2)))
        return spread or float(X.std()) or 1.0

    def _count_steps(self, problem: ClusteringProblem) -> int:
        algorithm = make_construction("em", clusters=problem.clusters).algorithm
        state = problem.start
        for k in range(1, MAX_STEPS + 1):
            after = algorithm.step(problem, state, k)
            if float((after - state).abs().max()) <= self.tolerance:
                return k
            state = after
        return MAX_STEPS + 1

    def _make_construction(self, problem: ClusteringProblem, steps: int) -> Construction[Any, Any]:
        largest = float(torch.cat([problem.x, problem.start]).abs().max())
        return make_construction(
            "em",
            d=problem.d,
            n=round_up(problem.n),
            clusters=problem.clusters,
            steps=steps,
            bound=30.0 * 2.0 ** max(0, int(np.ceil(np.log2(max(largest / 30.0, 1e-9))))),
        )
