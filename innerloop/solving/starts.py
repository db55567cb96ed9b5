"""Where clustering starts: given centres, or points drawn as k-means++ does."""

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
    """Read vectors to start from: (clusters, d) for all problems, or (problems, clusters, d)."""
    given = as_tensor(start, what).double().to(samples.x.device)
    d = samples.x.shape[-1]
    if given.shape[-2:] != (clusters, d) or given.ndim not in (2, 3):
        raise InputError(
            f"{what} must be ({clusters}, {d}), or one such for each problem; "
            f"got {tuple(given.shape)}"
        )
    check_start(what, given)
    if given.ndim == 3:
        if int(samples.places.max()) >= len(given):
            raise InputError(f"{what} must have one entry for each problem, got {len(given)}")
        return given[samples.places]
    return given.expand(len(samples.x), clusters, d)


def check_start(what: str, given: Tensor) -> None:
    """Refuse a start with NaN, infinity or numbers whose squares overflow."""
    fine = given.abs() <= LARGEST  # false for NaN
    if not bool(fine.all()):
        place = tuple(int(index) for index in (~fine).nonzero()[0])
        raise InputError(
            f"{what} must hold finite numbers of at most {LARGEST:g}, got {float(given[place])} "
            f"at {place}"
        )


def draw_far_points(samples: Samples, clusters: int, generator: torch.Generator) -> Centres:
    """Draw centres among the points, each with odds of its squared distance to those before.

    Source: Arthur and Vassilvitskii 2007, k-means++.
    """
    x, weights = samples.x, samples.weights
    odds, centres, nearest = weights, [], torch.full_like(weights, torch.inf)
    for _ in range(clusters):
        # Where every point is a centre already, any point does.
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
