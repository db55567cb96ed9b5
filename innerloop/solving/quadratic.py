"""Least-squares problems reduced to their Gram matrices: what all linear solvers work on.

With an intercept, rows and labels are centred first, which leaves the weights as they are:
½ mean (y − ⟨w, x⟩ − b)² = ½ ⟨w, G w⟩ − ⟨c, w⟩ + ½ s for G = mean x xᵀ, c = mean x y, s = mean y².
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.solving.data import Samples

Matrices = Float[Tensor, "problems d d"]
Vectors = Float[Tensor, "problems d"]
Numbers = Float[Tensor, " problems"]


class Quadratic(NamedTuple):
    """½ ⟨w, G w⟩ − ⟨c, w⟩ + ½ s for every problem, with the means that were taken away."""

    gram: Matrices
    moment: Vectors
    square: Numbers
    x_mean: Vectors
    y_mean: Numbers


class Centred(NamedTuple):
    """Rows and labels times the root of their weight over the total, centred if asked for."""

    x: Float[Tensor, "problems n d"]
    y: Float[Tensor, "problems n"]
    x_mean: Vectors
    y_mean: Numbers


def centre(samples: Samples, fit_intercept: bool) -> Centred:
    """Take the means away and scale rows, so that sums of squares are weighted means of squares."""
    x, y = samples.x, samples.labels
    x_mean, y_mean = x.new_zeros(x[:, 0].shape), y.new_zeros(len(y))
    if fit_intercept:
        x_mean, y_mean = samples.average(x), samples.average(y)
        x, y = x - x_mean.unsqueeze(1), y - y_mean.unsqueeze(1)
    if samples.weight is None:
        scale = x.shape[1] ** -0.5
        return Centred(x * scale, y * scale, x_mean, y_mean)
    scales = (samples.weight / samples.totals.unsqueeze(-1)).sqrt()
    return Centred(x * scales.unsqueeze(-1), y * scales, x_mean, y_mean)


def reduce_samples(samples: Samples, fit_intercept: bool) -> Quadratic:
    """Compute G, c and s of every problem."""
    x, y, x_mean, y_mean = centre(samples, fit_intercept)
    moment = (x.mT @ y.unsqueeze(-1)).squeeze(-1)
    return Quadratic(x.mT @ x, moment, y.square().sum(dim=-1), x_mean, y_mean)


def intercepts(
    weights: Float[Tensor, "problems *path d"], x_mean: Vectors, y_mean: Numbers
) -> Tensor:
    """b = ȳ − ⟨w, x̄⟩, for one vector per problem or several."""
    if weights.ndim == 3:
        return y_mean.unsqueeze(-1) - (weights @ x_mean.unsqueeze(-1)).squeeze(-1)
    return y_mean - (weights * x_mean).sum(dim=-1)


def matvec(matrices: Matrices, vectors: Vectors) -> Vectors:
    """Multiply each matrix by its vector."""
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)


def norms(vectors: Float[Tensor, "problems d"]) -> Numbers:
    """The Euclidean length of each vector."""
    return torch.linalg.vector_norm(vectors, dim=-1)
