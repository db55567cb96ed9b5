"""Reduce least-squares problems to Gram matrices, for the linear solvers.

With an intercept, rows and labels are centred first, which does not change the optimal weights:
½ mean (y − ⟨w, x⟩ − b)² = ½ ⟨w, G w⟩ − ⟨c, w⟩ + ½ s for G = mean x xᵀ, c = mean x y, s = mean y².
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.solving.data import Samples

DOUBTFUL_SHARE = 1e-9
"""Columns whose spread is at most this share of their mean are centred by `centre_carefully`."""
LEAST_SIZE = 1e-140
LEAST_SQUARE = LEAST_SIZE**2
"""Every column that is not 0 needs an entry of this size, so that its squares do not underflow."""
FLAT_SHARE = 2 * torch.finfo(torch.float64).eps
"""A column whose spread is at most this share of its size is constant up to rounding."""
Matrices = Float[Tensor, "problems d d"]
Vectors = Float[Tensor, "problems d"]
Numbers = Float[Tensor, " problems"]


class Quadratic(NamedTuple):
    """The matrix G, vector c and number s of ½ ⟨w, G w⟩ − ⟨c, w⟩ + ½ s for every problem.

    `x_mean` and `y_mean` are the means that were subtracted from rows and labels.
    """

    gram: Matrices
    moment: Vectors
    square: Numbers
    x_mean: Vectors
    y_mean: Numbers


class Centred(NamedTuple):
    """Rows and labels, multiplied by √(weight / total weight), and the subtracted means.

    Without an intercept, the means are 0.
    """

    x: Float[Tensor, "problems n d"]
    y: Float[Tensor, "problems n"]
    x_mean: Vectors
    y_mean: Numbers


def centre(samples: Samples, fit_intercept: bool) -> Centred:
    """Return centred rows and labels, scaled so that sums of squares are weighted mean squares."""
    x, y = samples.x, samples.labels
    check_labels(y, samples.places)
    x_mean, y_mean = x.new_zeros(x[:, 0].shape), y.new_zeros(len(y))
    if fit_intercept:
        x_mean, y_mean = samples.average(x), samples.average(y)
        x, y = x - x_mean.unsqueeze(1), y - y_mean.unsqueeze(1)
    if samples.weight is None:
        scale = x.shape[1] ** -0.5
        return Centred(x * scale, y * scale, x_mean, y_mean)
    scales = (samples.weight / samples.totals.unsqueeze(-1)).sqrt()
    return Centred(x * scales.unsqueeze(-1), y * scales, x_mean, y_mean)


def find_doubtful(squares: Vectors, x_mean: Vectors) -> Tensor:
    """Return the problems with a column that needs `centre_carefully`, or whose squares underflow.

    Subtracting the mean is not accurate enough for a column whose spread is small relative to it.
    `squares` holds the mean square of each centred column.
    """
    doubtful = squares <= (DOUBTFUL_SHARE * x_mean).square().clamp_min(LEAST_SQUARE)
    return doubtful.any(dim=-1).nonzero().squeeze(-1)


def recentre(samples: Samples, rows: Centred, doubtful: Tensor, fit_intercept: bool) -> None:
    """Centre the rows of the doubtful problems again by `centre_carefully`, in place."""
    part = samples.select(doubtful)
    check_underflow(part)
    if fit_intercept and len(doubtful):
        x, rows.x_mean[doubtful] = centre_carefully(part)
        scales = (part.weights / part.totals.unsqueeze(-1)).sqrt()
        rows.x[doubtful] = x * scales.unsqueeze(-1)


def centre_carefully(samples: Samples) -> tuple[Float[Tensor, "problems n d"], Vectors]:
    """Return centred rows and their mean, computed from the differences to one of the rows.

    If a column has a large mean and a small spread, these differences are exact. A column that
    varies by no more than rounding becomes 0.
    """
    first = samples.weights.argmax(dim=-1)
    origin = samples.x[torch.arange(len(first), device=first.device), first]
    x = samples.x - origin.unsqueeze(1)
    mean = samples.average(x)
    x = x - mean.unsqueeze(1)
    sizes = (samples.x.abs() * (samples.weights > 0).unsqueeze(-1)).amax(dim=1)
    flat = samples.average(x.square()).sqrt() <= FLAT_SHARE * sizes
    return torch.where(flat.unsqueeze(1), 0.0, x), origin + mean


def check_underflow(samples: Samples) -> None:
    """Raise an error if nonzero columns or labels are so small that their squares are 0."""
    if samples.y is not None:
        check_labels(samples.y, samples.places)
    largest = samples.x.abs().amax(dim=1)
    tiny = (largest > 0) & (largest < LEAST_SIZE)
    if bool(tiny.any()):
        problem, feature = (int(place) for place in tiny.nonzero()[0])
        raise InputError(
            f"feature {feature} of problem {int(samples.places[problem])} has no entry larger than "
            f"{float(largest[problem, feature]):.3g}, expected at least {LEAST_SIZE:g}: scale it"
        )


def check_labels(y: Float[Tensor, "problems n"], places: Tensor) -> None:
    """Raise an error if nonzero labels are so small that their squares are 0."""
    largest = y.abs().amax(dim=-1)
    tiny = (largest > 0) & (largest < LEAST_SIZE)
    if bool(tiny.any()):
        problem = int(tiny.nonzero()[0])
        raise InputError(
            f"problem {int(places[problem])} has no label larger than {float(largest[problem]):.3g}"
            f", expected at least {LEAST_SIZE:g}: scale the labels"
        )


def reduce_samples(samples: Samples, fit_intercept: bool) -> Quadratic:
    """Compute G, c and s of every problem."""
    rows = centre(samples, fit_intercept)
    gram = rows.x.mT @ rows.x
    doubtful = find_doubtful(gram.diagonal(dim1=-2, dim2=-1), rows.x_mean)
    if len(doubtful):
        recentre(samples, rows, doubtful, fit_intercept)
        gram = rows.x.mT @ rows.x
    moment = (rows.x.mT @ rows.y.unsqueeze(-1)).squeeze(-1)
    return Quadratic(gram, moment, rows.y.square().sum(dim=-1), rows.x_mean, rows.y_mean)


def intercepts(
    weights: Float[Tensor, "problems *path d"], x_mean: Vectors, y_mean: Numbers
) -> Tensor:
    """Return the intercepts b = ȳ − ⟨w, x̄⟩, for one vector w per problem or several."""
    if weights.ndim == 3:
        return y_mean.unsqueeze(-1) - (weights @ x_mean.unsqueeze(-1)).squeeze(-1)
    return y_mean - (weights * x_mean).sum(dim=-1)


def matvec(matrices: Matrices, vectors: Vectors) -> Vectors:
    """Multiply each matrix by its vector."""
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)


def norms(vectors: Float[Tensor, "problems d"]) -> Numbers:
    """Return the Euclidean length of each vector."""
    return torch.linalg.vector_norm(vectors, dim=-1)
