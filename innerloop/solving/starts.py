"""Initial centres for clustering: those of the caller, or points drawn by k-means++."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.solving.data import LARGEST, Samples

Centres = Float[Tensor, "problems clusters d"]


def read_start(start: Any, samples: Samples, clusters: int, what: str = "start") -> Tensor:
    """Read initial vectors: (clusters, d) for all problems, or (problems, clusters, d).

    Return them as (problems of the batch, clusters, d); `what` names the option in errors.
    """
    values = as_tensor(start, what).double().to(samples.x.device)
    d = samples.x.shape[-1]
    if values.shape[-2:] != (clusters, d) or values.ndim not in (2, 3):
        raise InputError(
            f"{what} must be ({clusters}, {d}), or one such for each problem; "
            f"got {tuple(values.shape)}"
        )
    check_start(what, values)
    if values.ndim == 3:
        if int(samples.places.max()) >= len(values):
            raise InputError(f"{what} must have one entry for each problem, got {len(values)}")
        return values[samples.places]
    return values.expand(len(samples.x), clusters, d)


def check_start(what: str, values: Tensor) -> None:
    """Raise an error if initial values have NaN, infinity or numbers whose squares overflow."""
    fine = values.abs() <= LARGEST  # false for NaN
    if not bool(fine.all()):
        place = tuple(int(index) for index in (~fine).nonzero()[0])
        raise InputError(
            f"{what} must hold finite numbers of at most {LARGEST:g}, got {float(values[place])} "
            f"at {place}"
        )


def draw_far_points(samples: Samples, clusters: int, generator: torch.Generator) -> Centres:
    """Draw centres among the points of each problem by k-means++.

    The probability of a point is proportional to its squared distance to the nearest centre that
    was drawn before, times its weight.

    Source: Arthur and Vassilvitskii 2007, k-means++.
    """
    x, weights = samples.x, samples.weights
    odds, centres, nearest = weights, [], torch.full_like(weights, torch.inf)
    for _ in range(clusters):
        # If every point is already a centre, all distances are 0: draw by the weights alone.
        odds = torch.where(odds.sum(dim=-1, keepdim=True) > 0, odds, weights)
        sums = odds.cumsum(dim=-1)
        draw = torch.rand(len(x), 1, generator=generator, dtype=torch.float64).to(x.device)
        place = torch.searchsorted(sums, draw * sums[:, -1:], right=True)
        place = place.clamp_max((weights > 0).sum(dim=-1, keepdim=True) - 1)
        centre = x.gather(1, place.unsqueeze(-1).expand(-1, 1, x.shape[-1]))
        centres.append(centre)
        nearest = torch.minimum(nearest, (x - centre).square().sum(dim=-1))
        odds = nearest * weights
    return torch.cat(centres, dim=1)
