"""Lloyd's algorithm from a k-means++ start: centres are drawn far from earlier centres.

The first centre is the first initial centre of the problem. Each further one is a point x, with a
probability proportional to D(x)², its squared distance to the nearest centre so far. The point is
drawn by the inverse of the distribution function at one of the numbers `draws` in [0, 1). Without
`draws`, it is the most probable point, which is the farthest from earlier centres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.em import Means
from innerloop.algorithms.lloyd import Lloyd
from innerloop.errors import InputError
from innerloop.problems.gaussian_mixture import ClusteringProblem


@dataclass(frozen=True, eq=False)
class KMeansPlusPlus(Lloyd):
    """Lloyd's algorithm from a k-means++ start.

    Equal `draws` and points give the same initial centres.
    """

    source: ClassVar[str] = "Arthur and Vassilvitskii 2007; the farthest point of Gonzalez 1985"
    draws: Float[Tensor, " further"] | None = None

    @classmethod
    def guesses(cls, problem: ClusteringProblem) -> list[KMeansPlusPlus]:
        return [cls()]

    def init(self, problem: ClusteringProblem) -> Means:
        further = problem.clusters - 1
        if self.draws is not None and len(self.draws) != further:
            raise InputError(
                f"expected {further} draws, one for each centre after the first, "
                f"got {len(self.draws)}"
            )
        centres = [problem.start[..., 0, :]]
        for k in range(further):
            chosen = torch.stack(centres, dim=-2)
            apart = (problem.x.unsqueeze(-2) - chosen.unsqueeze(-3)).square().sum(dim=-1)
            place = self._select_point(apart.amin(dim=-1), k)
            centres.append(
                problem.x.gather(-2, place.expand(*place.shape[:-1], problem.d))[..., 0, :]
            )
        return torch.stack(centres, dim=-2)

    def _select_point(self, squares: Float[Tensor, "*batch n"], k: int) -> Tensor:
        """Return the index of the next centre among the points, with two trailing dimensions."""
        if self.draws is None:
            return squares.argmax(dim=-1)[..., None, None]
        sums = squares.cumsum(dim=-1)
        goal = self.draws[k].to(sums) * sums[..., -1:]
        return (sums <= goal).sum(dim=-1).clamp_max(squares.shape[-1] - 1)[..., None, None]
