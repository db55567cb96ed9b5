"""Real data that scikit-learn brings along, cut to the sizes that a trained encoder takes.

Standardised  every feature of the whole set has mean 0 and variance 1 (constant ones are left out);
              patches of digits have their pixel means taken off. Then one number for the whole set
              brings the mean squared norm of a point to that of the training problems
Components    tables of `d` features drawn at random, or crosses of five pixels of the digits
Clouds        classes of the set, projected on its `d` first principal components; `n` points
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.problems.base import sample_sphere
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.principal_components import PCAProblem

SETS = ("iris", "wine", "breast cancer", "digits")
CROSS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""The pixels of a patch, from its centre."""
SIDE = 8
"""Pixels along a digit's side."""


def load_set(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Load points, standardised feature by feature, and their classes."""
    from sklearn import datasets

    if name not in SETS:
        raise InputError(f"no data set called {name!r}; there are {', '.join(SETS)}")
    found: Any = getattr(datasets, f"load_{name.replace(' ', '_')}")()
    x, spread = found.data - found.data.mean(axis=0), found.data.std(axis=0)
    return x[:, spread > 0] / spread[spread > 0], found.target


def cut_crosses() -> np.ndarray:
    """Cut crosses of five pixels out of every digit, with the mean of each pixel taken off."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    images = digits.images
    inner = range(1, SIDE - 1)
    crosses = [[images[:, i + di, j + dj] for di, dj in CROSS] for i in inner for j in inner]
    x = np.stack([np.stack(each, axis=-1) for each in crosses], axis=1).reshape(-1, len(CROSS))
    return x - x.mean(axis=0)


def draw_tables(
    name: str, *, d: int, n: int, count: int, power: float, generator: torch.Generator
) -> PCAProblem:
    """Draw `count` tables of n points and d features; `power` is the mean ‖x‖² that they get."""
    x = cut_crosses() if name == "crosses of digits" else load_set(name)[0]
    _check_features(name, x, d)
    points = torch.as_tensor(x)
    tables = []
    for _ in range(count):
        rows = torch.randperm(len(points), generator=generator)[:n]
        columns = torch.randperm(points.shape[1], generator=generator)[:d]
        tables.append(points[rows][:, columns])
    found = torch.stack(tables)
    start = sample_sphere(1, d, (count,), generator)
    return PCAProblem(scale_to(found, power), start)


def draw_clouds(
    name: str,
    classes: list[int],
    *,
    d: int,
    n: int,
    count: int,
    power: float,
    generator: torch.Generator,
) -> ClusteringProblem:
    """Draw `count` samples of n points of some classes, centred, with points to start from."""
    from sklearn.decomposition import PCA

    x, target = load_set(name)
    _check_features(name, x, d)
    kept = np.isin(target, classes)
    points = torch.as_tensor(PCA(n_components=d).fit_transform(x[kept]))
    numbers = torch.as_tensor(np.searchsorted(sorted(classes), target[kept]))
    rows = torch.stack([torch.randperm(len(points), generator=generator)[:n] for _ in range(count)])
    found = scale_to(points[rows], power)
    return ClusteringProblem(found, found[:, : len(classes)].clone(), numbers[rows])


def _check_features(name: str, x: np.ndarray, d: int) -> None:
    if x.shape[1] < d:
        raise InputError(f"{name} has {x.shape[1]} features, fewer than the {d} wanted")


def scale_to(x: Tensor, power: float) -> Tensor:
    """Scale all points alike so that their mean squared norm is `power`."""
    return x * (power / x.square().sum(dim=-1).mean()).sqrt()
