"""Lloyd's algorithm (k-means), run by sharp softmax attention.

Algorithm  assign each point to its nearest mean, and move each mean to the mean of its points; a
           cluster without points moves to the mean of all points
Invariant  centroid token k holds μ_k; data tokens hold their points
Proof      see clustering.py: with a large a = b, shares are 1 for the nearest mean and 0 for the
           others, up to ε = (K − 1) e^{−b·margin}, if the gap in ½‖x − μ‖² to the second nearest
           mean is at least margin. Means with scores β·share are the means of the cluster's points,
           because other points have e^{−β(1 − 2ε)} of their weight. In a cluster without points,
           scores differ by at most βε, and the mean is the mean of all points
Bound      diam [n e^{−β(1 − 2ε)} + e^{βε} − 1] + ε, with diam = 2·bound in each entry
Holds for  entries within `bound`, up to n points, and no point closer to a tie than margin, which
           must be above the rounding of distances. Ties are excluded: the algorithm assigns a tied
           point to the first of its nearest means, the head divides it among them, and within the
           margin the head changes gradually from one to the other. Clusters that are empty at the
           same step stay equal afterwards; this is a tie, which is detected if they are the
           nearest. Certificates are measured on instances without ties at any step, and report the
           number of instances that were replaced
Source     yang2025.he.em-steps: the hard limit of its E and M heads
"""

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.lloyd import Lloyd, margin
from innerloop.constructions.clustering import ClusteringConstruction, move_means, share
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, dot
from innerloop.language.classes import Cost, parameter
from innerloop.problems.gaussian_mixture import ClusteringProblem


@define(prompt="points", x=Data("d"), mu=State("d"), id=Data("K"), data=Data(), centroid=Data())
def cluster(me: Any, own: Any) -> None:
    me.share = share(me, own)
    move_means(me, own, lambda j: own.focus * dot(me.id, j.share))


cluster.answer(share)


class LloydConstruction(ClusteringConstruction):
    """Lloyd's algorithm by softmax attention: three blocks per step, two for the read-out."""

    definition = cluster
    source = "Yang 2025 (Transformers versus the EM algorithm), the hard limit"
    cost = Cost("3k + 2", "1", "3d + 2K + 3", where="K = clusters")
    error = "2 bound [n e^{−β(1−2ε)} + e^{βε} − 1] + ε, ε = (K−1) e^{−b·margin}"
    remedy = "build it with a smaller margin and a larger sharpness"
    cases = (
        {"d": 2, "n": 25, "clusters": 5, "steps": 10},
        {"d": 2, "n": 12, "clusters": 2, "steps": 3, "focus": 15.0},
    )

    sharpness: float = parameter(1e8, "b, sharpness of the choice of a mean", least=1e-6, most=1e15)
    focus: float = parameter(
        60.0, "β, which suppresses points of other clusters", least=1.0, most=1e4
    )
    margin: float = parameter(1e-6, "the least gap in ½‖x − μ‖² of a point's means", least=1e-12)

    def __post_init__(self) -> None:
        super().__post_init__()
        rounding = 32 * torch.finfo(torch.float64).eps * self.max_product
        if self.margin < rounding:
            raise OutOfRangeError(
                f"margin must be above {rounding:.1g}, the rounding of distances with d={self.d} "
                f"and bound={self.bound:g}, got {self.margin:g}: use a smaller bound"
            )
        if self.share_error > 0.01 / self.focus:
            least = math.log(100 * self.focus * max(1, self.clusters - 1))
            raise OutOfRangeError(
                f"sharpness · margin must be at least {least:.3g} for {self.clusters} clusters and "
                f"focus {self.focus:g}, got {self.sharpness * self.margin:.3g}: enlarge sharpness"
            )

    @cached_property
    def algorithm(self) -> Lloyd:
        return Lloyd()

    @property
    def share_error(self) -> float:
        """The largest error ε of a share."""
        return (self.clusters - 1) * math.exp(-min(700.0, self.sharpness * self.margin))

    @property
    def precision(self) -> float:
        return self.sharpness

    @property
    def mean_reach(self) -> float:
        """The constant C of the M head (see Leak in the header of clustering.py)."""
        return self.find_reach(self.focus)

    def tolerance(self, dtype: torch.dtype) -> float:
        others = self.n * math.exp(-self.focus * (1 - 2 * self.share_error))
        off = 2 * self.bound * (others + math.expm1(self.focus * self.share_error))
        return super().tolerance(dtype) + off + self.share_error

    def usage(self, stream: Tensor) -> float:
        """Return `margin` divided by the smallest gap between a point's two nearest means."""
        data = self.layout.read(stream, "data")[(0,) * (stream.ndim - 2)]
        x, mu = (self.layout.read(stream, name) for name in ("x", "mu"))
        points, means = x[..., data > 0, :], mu[..., data == 0, :]
        return self.margin / max(float(margin(ClusteringProblem(points, means), means)), 1e-300)
