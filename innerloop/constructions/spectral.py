"""Base class of constructions that iterate v ← Av/‖Av‖: sizes, the range of ‖Av‖, the blocks."""

from abc import ABC
from collections.abc import Iterable

import torch
from torch import Tensor

from innerloop.constructions.power_iteration import find_knot_error
from innerloop.errors import OutOfRangeError
from innerloop.language.classes import ProgramConstruction, parameter


class SpectralConstruction(ProgramConstruction, ABC):
    """A construction on n data tokens, with a d×d matrix spread over the first d of them."""

    exact = False
    attention = "relu"
    takes = "only"
    usage_by_accept = True  # `check_lengths`
    components = 1

    d: int = parameter(5, "features", least=1, most=16)
    n: int = parameter(20, "data points; the weights depend on n", least=1, most=2_000)
    knots: int = parameter(400, "knots of the inverse length", least=2, most=100_000)
    least: float = parameter(1e-3, "the least ‖Av‖ allowed", least=1e-6)
    most: float = parameter(10.0, "the largest ‖Av‖ allowed", least=1e-6, most=1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < self.d:
            raise OutOfRangeError(
                f"{self.name} expects n ≥ d={self.d} points, because it stores A on d tokens, "
                f"got n={self.n}"
            )
        if not self.least < self.most:
            raise OutOfRangeError(f"least={self.least:g} must be below most={self.most:g}")
        if (delta := find_knot_error(self.knots, self.least, self.most)) > 0.1:
            raise OutOfRangeError(
                f"expected knots with an error of at most 0.1, got {delta:.2g} for {self.knots} "
                f"knots from {self.least:g} to {self.most:g}: use more knots or a narrower range"
            )

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "c": self.components}

    @property
    def length_error(self) -> float:
        """The largest relative error of a length, 3/2 δ² + 1/2 δ³."""
        delta = find_knot_error(self.knots, self.least, self.most)
        return 1.5 * delta**2 + 0.5 * delta**3

    def check_lengths(self, lengths: Iterable[Tensor]) -> None:
        """Check that every ‖Av‖ is in the range of the knots, else raise."""
        values = torch.stack(list(lengths)).detach()
        if not bool((torch.isfinite(values) & (values > 0)).all()):
            raise OutOfRangeError(
                f"{self.name} expects a finite, positive ‖Av‖ of every vector, got 0 or infinity: "
                "the data are constant or too large, or orthogonal to a starting vector"
            )
        low, high = float(values.min()), float(values.max())
        if not (self.least <= low and high <= self.most):
            raise OutOfRangeError(
                f"{self.name} was built for ‖Av‖ from {self.least:g} to {self.most:g}, got "
                f"{low:.3g} to {high:.3g}: build it with another least and most"
            )
