"""Baselines that others wrote, on the same instances: scikit-learn's clusterings and PCA.

Every method gets the points of one instance and nothing else, except `Lloyd` and `EM`, this
package's own, which begin at the instance's starting centres. Random methods are seeded by the
number of the instance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.algorithms.em import EM
from innerloop.algorithms.lloyd import Lloyd
from innerloop.errors import InputError
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.principal_components import PCAProblem

STEPS = 30
"""Steps of Lloyd's algorithm and of EM: on tens of points they have settled by then."""
Labels = Int[Tensor, "batch n"]
Estimator = Callable[[int, int], Any]


def _make_estimators() -> dict[str, Estimator]:
    from sklearn.cluster import KMeans, SpectralClustering
    from sklearn.mixture import GaussianMixture

    def make_k_means(init: str, starts: Any) -> Estimator:
        return lambda k, seed: KMeans(k, init=init, n_init=starts, random_state=seed)

    return {
        "KMeans, one start": make_k_means("random", 1),
        "KMeans, ten starts": make_k_means("random", 10),
        "KMeans, k-means++": make_k_means("k-means++", 1),
        "GaussianMixture": lambda k, seed: GaussianMixture(
            k, covariance_type="spherical", random_state=seed
        ),
        "SpectralClustering": lambda k, seed: SpectralClustering(k, random_state=seed),
    }


CLUSTERINGS = (
    "KMeans, one start",
    "KMeans, ten starts",
    "KMeans, k-means++",
    "GaussianMixture",
    "SpectralClustering",
)
"""scikit-learn's clusterings, by the name under which they are shown."""


def cluster_points(name: str, x: Float[Tensor, "batch n d"], clusters: int) -> Labels:
    """Cluster every instance by one of scikit-learn's methods."""
    if name not in CLUSTERINGS:
        raise InputError(f"no clustering called {name!r}; there are {', '.join(CLUSTERINGS)}")
    if x.shape[-2] < clusters:
        raise InputError(f"{clusters} clusters need as many points, got {x.shape[-2]}")
    make, found = _make_estimators()[name], []
    with warnings.catch_warnings():
        # Points that coincide, or a graph that falls apart: the labels are what they are.
        warnings.simplefilter("ignore")
        for seed, points in enumerate(x.double().numpy()):
            found.append(make(clusters, seed).fit_predict(points))
    return torch.as_tensor(np.stack(found), dtype=torch.int64)


def cluster_from_start(name: str, problem: ClusteringProblem, noise: float = 1.0) -> Labels:
    """Cluster by Lloyd's algorithm or by EM, from the starting centres of each instance."""
    equal = torch.zeros(problem.clusters, dtype=torch.float64)
    known = {"Lloyd": Lloyd(), "EM": EM(torch.tensor(noise, dtype=torch.float64), equal)}
    if name not in known:
        raise InputError(f"no algorithm called {name!r}; there are {', '.join(known)}")
    *_, state = known[name].states(problem, STEPS)
    return known[name].predict(problem, state).argmax(dim=-1)


def find_components(problem: PCAProblem) -> Float[Tensor, "batch k d"]:
    """The components of every instance by scikit-learn's PCA, which centres the points."""
    from sklearn.decomposition import PCA

    found = []
    for points in problem.x.double().numpy():
        fitted: Any = PCA(n_components=problem.components).fit(points)
        found.append(fitted.components_)
    return torch.as_tensor(np.stack(found))
