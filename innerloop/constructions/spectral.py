"""What the constructions that iterate v ← Av/‖Av‖ share: sizes, the range of ‖Av‖, the blocks."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.constructions.power_iteration import PowerIteration
from innerloop.errors import OutOfRange
from innerloop.parameters import parameter
from innerloop.problems.principal_components import PCAProblem


@dataclass(frozen=True, kw_only=True, eq=False)
class SpectralConstruction(Construction, ABC):
    """A construction on n data tokens, with a d×d matrix spread over the first d of them."""

    exact: ClassVar[bool] = False

    d: int = parameter(5, "features", least=1, most=16)
    n: int = parameter(20, "data points; the weights depend on n", least=1, most=2_000)
    knots: int = parameter(400, "knots of the inverse length", least=2, most=100_000)
    least: float = parameter(1e-3, "the least ‖Av‖ allowed", least=1e-6)
    most: float = parameter(10.0, "the largest ‖Av‖ allowed", least=1e-6, most=1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < self.d:
            raise OutOfRange(f"{self.name} spreads A over d tokens: n ≥ d={self.d}, got n={self.n}")
        if not self.least < self.most:
            raise OutOfRange(f"least={self.least:g} must be below most={self.most:g}")
        if (delta := self.blocks.delta) > 0.1:
            raise OutOfRange(
                f"{self.knots} knots from {self.least:g} to {self.most:g} are off by {delta:.2g}, "
                "0.1 is allowed: use more knots or a narrower range"
            )

    @cached_property
    def blocks(self) -> PowerIteration:
        return PowerIteration(self.layout, self.n, self.knots, self.least, self.most)

    def check_sizes(self, problem: PCAProblem, components: int) -> None:
        """Refuse data of other sizes than those built for."""
        built = f"n={self.n}, d={self.d}, {components} starting vectors"
        found = f"n={problem.n}, d={problem.d}, {problem.components} starting vectors"
        if found != built:
            raise OutOfRange(f"{self.name} was built for {built}; got {found}")

    def check_lengths(self, lengths: Iterable[Tensor]) -> None:
        """Refuse data whose ‖Av‖ leave the range that the knots were laid on."""
        met = torch.stack(list(lengths))
        if not bool((torch.isfinite(met) & (met > 0)).all()):
            raise OutOfRange(
                f"{self.name} met a vector v with ‖Av‖ = 0 or beyond all numbers: the data are "
                "constant or far too large, or a starting vector is at right angles to all of them"
            )
        low, high = float(met.min()), float(met.max())
        if not (self.least <= low and high <= self.most):
            raise OutOfRange(
                f"{self.name} was built for ‖Av‖ from {self.least:g} to {self.most:g}, the data "
                f"meet {low:.3g} to {high:.3g}: build it with another least and most"
            )


def unit_vectors(problem: PCAProblem) -> Float[Tensor, "n d"]:
    """e_j for token j ≤ d, 0 for the others."""
    return torch.eye(problem.n, problem.d, dtype=problem.x.dtype, device=problem.x.device)
