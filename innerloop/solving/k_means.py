"""Cluster the points of every problem by k-means: Lloyd's algorithm until nothing changes.

Each step assigns every point to the nearest centre, and moves every centre to the mean of its
points, until no point changes its cluster. A cluster that has lost all of its points gets the point
that is farthest from the centre of its cluster. With `start`, the result is that of scikit-learn's
KMeans(init=start, n_init=1, tol=0). Source: Lloyd 1982.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.limits import check_count, check_seed
from innerloop.solving.base import Answers, Solver
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import check_underflow
from innerloop.solving.starts import Centres, draw_far_points, read_start

Labels = Int[Tensor, "problems n"]


@dataclass(frozen=True, kw_only=True, eq=False)
class KMeans(Solver):
    """Solver of k-means.

    Lloyd's algorithm begins at the centres `start`. Without them, it runs from `restarts` random
    draws of k-means++ by `seed`, and the result of least inertia is returned.
    """

    measure: ClassVar[str] = "squared movement of all centres in the last step, over the variance"
    labelled: ClassVar[bool] = False
    default_tolerance: ClassVar[float] = 0.0

    clusters: int = 8
    start: Any = None
    restarts: int = 1
    seed: int = 0
    max_steps: int = 300

    def prepare(self, sizes: Sequence[int], d: int) -> KMeans:
        check_count("clusters", self.clusters, 1)
        check_count("restarts", self.restarts, 1)
        if min(sizes) < self.clusters:
            raise InputError(
                f"every problem must have at least {self.clusters} rows, one per cluster; "
                f"got one with {min(sizes)}"
            )
        return self

    def count_numbers(self, d: int) -> tuple[int, int]:
        return 3 * d + 4 * self.clusters, 4 * self.clusters * d

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        check_underflow(samples)
        shift = samples.average(samples.x).unsqueeze(1)  # small distances keep their digits
        centred = Samples(samples.x - shift, None, samples.weight, samples.places)
        if self.start is not None:
            centres = read_start(self.start, samples, self.clusters) - shift
            best = _iterate(centred, centres, tolerance, self.max_steps)
        else:
            generator = torch.Generator().manual_seed(check_seed(self.seed))
            best = {}
            for _ in range(self.restarts):
                centres = draw_far_points(centred, self.clusters, generator)
                candidate = _iterate(centred, centres, tolerance, self.max_steps)
                best = keep_better(
                    best, candidate, best["inertia"] > candidate["inertia"] if best else None
                )
        return {**best, "centers": best["centers"] + shift}


def keep_better(best: Answers, candidate: Answers, better: Tensor | None) -> Answers:
    """Return each problem's answers from `candidate` where `better`, and else from `best`."""
    if better is None:
        return candidate
    return {
        name: torch.where(better.reshape(-1, *(1,) * (values.ndim - 1)), values, best[name])
        for name, values in candidate.items()
    }


def _iterate(samples: Samples, start: Centres, tolerance: float, max_steps: int) -> Answers:
    """Run Lloyd's algorithm; problems that have ended leave the batch."""
    centres, labels = start.clone(), assign(samples.x, start)
    variance = samples.average(samples.x.square()).mean(dim=-1)
    moves = torch.full_like(variance, torch.inf)
    steps = torch.zeros(len(start), dtype=torch.int64, device=start.device)
    active, part = torch.arange(len(start), device=start.device), samples
    for _ in range(max_steps):
        before = centres[active]
        after = move_centres(part, labels[active], before)
        changed = assign(part.x, after)
        moved = (after - before).square().sum(dim=(1, 2))
        same = ((changed == labels[active]) | (part.weights == 0)).all(dim=-1)
        centres[active], labels[active] = after, changed
        # If no point changes its cluster, the next step would not move a centre.
        moves[active] = torch.where(same, 0.0, moved)
        steps[active] += 1
        unfinished = ~(same | (moved <= tolerance * variance[active]))
        if not bool(unfinished.all()):
            active = active[unfinished]
            if not len(active):
                break
            part = samples.select(active)
    scale = torch.where(variance > 0, variance, 1.0)
    assigned = centres.gather(1, labels.unsqueeze(-1).expand_as(samples.x))
    distances = (samples.x - assigned).square().sum(dim=-1)
    return {
        "centers": centres,
        "labels": labels,
        "inertia": (distances * samples.weights).sum(dim=-1),
        "optimality": moves / scale,
        "converged": moves <= tolerance * scale,
        "steps": steps,
    }


def assign(x: Float[Tensor, "problems n d"], centres: Centres) -> Labels:
    """Return the index of every point's nearest centre, the lowest one at a tie."""
    scores = centres.square().sum(dim=-1).unsqueeze(1) - 2 * (x @ centres.mT)
    return scores.argmin(dim=-1)


def move_centres(samples: Samples, labels: Labels, centres: Centres) -> Centres:
    """Return centres at the mean of their points; a centre without points gets a far point."""
    members = torch.nn.functional.one_hot(labels, centres.shape[1]).to(samples.x)
    if samples.weight is not None:
        members = members * samples.weight.unsqueeze(-1)
    counts, sums = members.sum(dim=1), members.mT @ samples.x
    empty = (counts == 0).any(dim=-1).nonzero().squeeze(-1)
    for p in empty.tolist():
        _relocate(samples, labels, centres, counts, sums, p)
    return torch.where(
        counts.unsqueeze(-1) > 0, sums / counts.clamp_min(1e-300).unsqueeze(-1), centres
    )


def _relocate(
    samples: Samples, labels: Labels, centres: Centres, counts: Tensor, sums: Tensor, p: int
) -> None:
    """Move the points of problem p that are farthest from their centres into its empty clusters.

    `counts` and `sums` of the clusters are changed in place.
    """
    weights = samples.weights[p]
    distances = (samples.x[p] - centres[p, labels[p]]).square().sum(dim=-1)
    distances = torch.where(weights > 0, distances, -1.0)
    by_distance = distances.argsort(descending=True)
    if float(distances.max()) == 0:
        return  # every point is at its centre: moving one would not reduce the inertia
    for place, k in zip(
        by_distance.tolist(), (counts[p] == 0).nonzero().squeeze(-1).tolist(), strict=False
    ):
        weight, home = weights[place], int(labels[p, place])
        point = weight * samples.x[p, place]
        sums[p, k], counts[p, k] = point, weight
        sums[p, home] -= point
        counts[p, home] -= weight
