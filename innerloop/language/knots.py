"""Functions on knots: straight lines between them, and how far these are from the function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.transformer.pieces import Elementwise, piecewise_linear

SHARES = torch.linspace(0.0, 1.0, 33, dtype=torch.float64)[1:-1]
"""Where the error of an interval is measured: if f″ has one sign there, to a thousandth."""
SLACK = 1.002
"""Factor on measured errors, for what lies between the points."""


@dataclass(frozen=True, eq=False)
class Knots:
    """A function, and the places where straight lines meet it."""

    function: Callable[[Tensor], Tensor]
    places: Tensor

    @cached_property
    def net(self) -> tuple[list[float], ...]:
        """Slope, bias and weight of the hidden units that add up to the lines."""
        piece = piecewise_linear("x", "y", self.function, self.places)
        assert isinstance(piece, Elementwise)
        return tuple(part.tolist() for part in (piece.slope, piece.bias, piece.weight))

    @cached_property
    def errors(self) -> Tensor:
        """The largest difference between function and line in each interval, rounding apart."""
        low, high = self.places[:-1, None], self.places[1:, None]
        lines = self.function(low) * (1 - SHARES) + self.function(high) * SHARES
        inside = self.function(low + (high - low) * SHARES)
        found = (inside - lines).abs().amax(-1)
        rounding = 8 * torch.finfo(found.dtype).eps * inside.abs().amax(-1)
        return found.masked_fill(found <= rounding, 0.0)

    @cached_property
    def slopes(self) -> Tensor:
        """The slope of each line, without its sign."""
        return (self.function(self.places).diff() / self.places.diff()).abs()

    def __getstate__(self) -> dict[str, Any]:
        """Let copies in other processes do without the function, which may have no name."""
        known = {name: getattr(self, name) for name in ("places", "net", "errors", "slopes")}
        return {**known, "function": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Knots:
        return self

    def bound_error(self, numbers: Tensor, radius: Tensor) -> Tensor:
        """Bound the difference of the lines at `numbers` and the function within their radius."""
        last = len(self.errors) - 1
        inner = self.places[1:-1].to(numbers)
        first, end = (
            torch.bucketize(side.contiguous(), inner)
            for side in (numbers - radius, numbers + radius)
        )
        slope, error = (part.to(numbers) for part in (self.slopes, SLACK * self.errors))
        found = torch.zeros_like(numbers)
        for offset in range(int((end - first).max()) + 1):
            at = torch.minimum(first + offset, end).clamp_max(last)
            found = torch.maximum(found, slope[at] * radius + error[at])
        return found
