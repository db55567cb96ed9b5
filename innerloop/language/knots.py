"""Functions on knots: the straight lines between the knots, and their distance from the
function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.language.errors import CannotCompile
from innerloop.language.refusals import describe_kind
from innerloop.transformer.pieces import Elementwise, piecewise_linear

SHARES = torch.linspace(0.0, 1.0, 33, dtype=torch.float64)
"""The relative positions in each interval at which the error of its line is measured."""
FAR = 1e30
"""The outer end of the constant lines outside of the knots."""


@dataclass(frozen=True, eq=False)
class Knots:
    """A function, and the places (knots) at which the straight lines are equal to it."""

    function: Callable[[Tensor], Tensor]
    places: Tensor

    def evaluate(self, places: Tensor) -> Tensor:
        """Return the function at some places; it receives a copy, which it may change."""
        return self.function(places.clone())

    @cached_property
    def net(self) -> tuple[list[float], ...]:
        """Slope, bias and weight of the hidden units whose sum is the straight lines."""
        piece = piecewise_linear("x", "y", self.evaluate, self.places)
        assert isinstance(piece, Elementwise)
        return tuple(part.tolist() for part in (piece.slope, piece.bias, piece.weight))

    @cached_property
    def levels(self) -> Tensor:
        """The values of the function at the knots."""
        return self.evaluate(self.places)

    @cached_property
    def slopes(self) -> Tensor:
        """The slope of each line."""
        return self.levels.diff() / self.places.diff()

    @cached_property
    def _measured(self) -> Tensor:
        """Function minus line at the positions `SHARES` of each interval.

        Rounding errors are set to 0.
        """
        low, high = self.places[:-1, None], self.places[1:, None]
        inside = self.evaluate(low + (high - low) * SHARES)
        inside[:, 0], inside[:, -1] = self.levels[:-1], self.levels[1:]
        difference = inside - (
            self.levels[:-1, None] * (1 - SHARES) + self.levels[1:, None] * SHARES
        )
        rounding = 8 * torch.finfo(difference.dtype).eps * inside.abs().amax(-1, keepdim=True)
        return difference.masked_fill(difference.abs() <= rounding, 0.0)

    @cached_property
    def errors(self) -> Tensor:
        """The largest measured distance between function and line in each interval."""
        return self._measured.abs().amax(-1)

    def _bound_errors(self) -> Tensor:
        """Return a lower and an upper bound on function minus line in each interval.

        Between two measured points, the function may differ by a further h²/8 · max|f″|. A quarter
        of the largest second difference estimates this, and allows for an f″ twice as large as
        measured.
        """
        measured = self._measured
        turn = measured.diff(n=2).abs().amax(-1) / 4
        return torch.stack([measured.amin(-1) - turn, measured.amax(-1) + turn])

    @cached_property
    def lines(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Places, levels, slopes, and the least and largest error of the lines.

        If the function converges outside of the knots, the constant lines there are included.
        """
        places, levels, slopes = self.places, self.levels, self.slopes
        errors = self._bound_errors()
        flat, widths = slopes.new_zeros(1), places.diff()
        if (tail := self._measure_tail(places[-1], levels[-1], widths[-1])) is not None:
            places, levels = torch.cat([places, flat + FAR]), torch.cat([levels, levels[-1:]])
            slopes, errors = torch.cat([slopes, flat]), torch.cat([errors, tail], -1)
        if (tail := self._measure_tail(places[0], levels[0], -widths[0])) is not None:
            places, levels = torch.cat([flat - FAR, places]), torch.cat([levels[:1], levels])
            slopes, errors = torch.cat([flat, slopes]), torch.cat([tail, errors], -1)
        return places, levels, slopes, errors

    def _measure_tail(self, end: Tensor, level: Tensor, width: Tensor) -> Tensor | None:
        """Return the least and largest error beyond an end of the knots.

        Return None unless the function is monotone there and converges.
        """
        distance = self.evaluate(end + width * 2.0 ** torch.arange(-5, 60).to(end)) - level
        steps, rounding = distance.diff(), 8 * torch.finfo(end.dtype).eps * (1 + level.abs())
        one_way = bool((steps >= -rounding).all()) or bool((steps <= rounding).all())
        if not one_way or not bool((steps[-20:].abs() <= rounding).all()):
            return None
        return torch.stack([distance.amin().clamp_max(0.0), distance.amax().clamp_min(0.0)])[
            :, None
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the function, which may have no name, so that it can be
        pickled.
        """
        names = ("places", "net", "errors", "lines")
        return {**{name: getattr(self, name) for name in names}, "function": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Knots:
        return self

    def enclose(self, middle: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, slope and half: the function is value + slope·t ± half at middle + t.

        This holds for all |t| ≤ radius in the domain: between the knots, and beyond them if the
        function converges there. If the interval lies outside of the domain, nothing is known, and
        half is infinite.
        """
        places, levels, slopes, errors = (part.to(middle) for part in self.lines)
        low, high = (
            side.clamp(places[0], places[-1]) for side in (middle - radius, middle + radius)
        )
        first, last = (torch.bucketize(side, places[1:-1]) for side in (low, high))

        def follow(x: Tensor, k: Tensor) -> Tensor:
            return levels[k] + slopes[k] * (x - places[k])

        chord = (follow(high, last) - follow(low, first)) / (high - low).clamp_min(1e-300)
        slope = torch.where(first == last, slopes[first], chord)
        bottom, top = torch.full_like(middle, torch.inf), torch.full_like(middle, -torch.inf)
        for offset in range(int((last - first).max()) + 1):
            k = torch.minimum(first + offset, last)
            ends = torch.maximum(low, places[k]), torch.minimum(high, places[k + 1])
            left, right = (follow(x, k) - slope * (x - middle) for x in ends)
            bottom = torch.minimum(bottom, torch.minimum(left, right) + errors[0, k])
            top = torch.maximum(top, torch.maximum(left, right) + errors[1, k])
        outside = (middle - middle.clamp(places[0], places[-1])).abs()
        unknown = outside > radius + 1e-9 * (self.places[-1] - self.places[0]).to(middle)
        return (top + bottom) / 2, slope, ((top - bottom) / 2).masked_fill(unknown, torch.inf)


def check_knots(knots: Knots) -> None:
    """Raise an error for knots, or functions on them, that straight lines cannot follow."""
    places = knots.places
    if places.ndim != 1 or len(places) < 2 or not bool((places.diff() > 0).all()):
        raise CannotCompile("knots must be at least two increasing numbers")
    try:
        met = knots.evaluate(places)
    except Exception as error:
        raise CannotCompile(
            "piecewise calls its function with a tensor of all knots: use functions of torch, such "
            f"as torch.log for math.log ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(met, Tensor) or met.shape != places.shape:
        raise CannotCompile(
            f"the function of piecewise must return a number for each of the {len(places)} knots, "
            f"got {describe_kind(met)}"
        )
    if not bool(torch.isfinite(met).all()):
        where = float(places[~torch.isfinite(met)][0])
        raise CannotCompile(f"the function of piecewise is not finite at the knot {where:g}")
