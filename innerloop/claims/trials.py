"""Trials of a statement: all of its cases, how close they come, and the smallest that violates it.

    trial = Equality("w₊ = w + A ∇R(w)", tolerance=1e-10)
    trial.add(left, right, Case(d=d, n=n, layer=k))
    Part(printed=trial.check())

The check shows the smallest case that violates the statement, with both sides computed. Equalities
hold up to rounding, inequalities relative to their larger side, expectations up to standard errors.
`intervals` has checks that an interval decides, `searching` the search for violations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Check, Erratum, Grade

Number = float | int | Tensor
Working = tuple[str, str]
"""How the left and the right side are computed, such as ("3 · 0.04 · 9", ""): shown before their
values."""
FEW_ENTRIES = 9
"""Largest number of entries of a side that a counterexample shows; of a larger one it shows the
distance to the other side."""


@dataclass(eq=False)
class _Trial:
    """Counts cases, and stores the smallest one that violates the statement."""

    statement: str
    cases: int = field(default=0, init=False)
    violations: int = field(default=0, init=False)
    smallest: tuple[tuple[float, ...], str] | None = field(default=None, init=False)

    def _record_case(self, violated: bool, case: Case, describe: Callable[[], str]) -> None:
        self.cases += 1
        self.violations += violated
        if violated and (self.smallest is None or case.size < self.smallest[0]):
            self.smallest = (case.size, f"{case}: {describe()}")

    def _count(self) -> str:
        return "1 case" if self.cases == 1 else f"{self.cases} cases"

    def check(self) -> Check:
        """Return the outcome of all cases."""
        raise NotImplementedError

    def _build_check(self, passed: bool | None, summary: str) -> Check:
        if not self.cases:
            raise ValueError(f"a trial needs at least one case, got none: {self.statement}")
        counterexample = self.smallest[1] if self.smallest and passed is False else ""
        return Check(
            statement=self.statement,
            passed=passed,
            summary=summary,
            counterexample=counterexample,
        )


@dataclass(eq=False)
class Equality(_Trial):
    """left = right in every case, to rounding: |left − right| ≤ tolerance · max(1, |right|)."""

    tolerance: float = 1e-9
    worst: float = field(default=0.0, init=False)

    def add(self, left: Number, right: Number, case: Case, *, working: Working = ("", "")) -> float:
        """Try a case; return the relative difference of its sides."""
        one, other = _as_tensor(left), _as_tensor(right)
        if one.shape != other.shape:
            raise ValueError(f"{tuple(one.shape)} cannot equal {tuple(other.shape)}: {case}")
        scale = max(1.0, _largest_magnitude(other))
        deviation = _largest_magnitude(one - other) / scale
        self.worst = max(self.worst, deviation)

        def describe() -> str:
            if max(one.numel(), other.numel()) > FEW_ENTRIES:
                return f"the sides differ by {deviation:.3g} relative to the largest entry"
            sides = (format_entry(one), format_entry(other))
            return " ≠ ".join(map(_write_side, working, sides))

        self._record_case(deviation > self.tolerance, case, describe)
        return deviation

    def check(self) -> Check:
        failing = f", {self.violations} of them unequal" if self.violations else ""
        return self._build_check(
            not self.violations,
            f"{self._count()}{failing}, largest relative difference {self.worst:.2g} "
            f"(allowed {self.tolerance:.0e})",
        )


def check_told(statement: str, rows: Iterable[Mapping[str, Any]], tolerance: float) -> Check:
    """Check that the columns `told` and `wanted` are equal in every row that has both."""
    trial = Equality(statement, tolerance=tolerance)
    for row in rows:
        if "told" in row:
            trial.add(row["told"], row["wanted"], row["case"])
    return trial.check()


@dataclass(eq=False)
class Inequality(_Trial):
    """left ≤ right in every case, to rounding: left − right ≤ rounding · max(|left|, |right|).

    The summary shows the sides of the closest case: that with the least (right − left) relative to
    the larger side.
    """

    rounding: float = 1e-12
    larger_first: bool = False
    """Whether the statement is written as right ≥ left: the sides are shown in that order."""
    closest: tuple[float, str] = field(default=(math.inf, ""), init=False)
    search_note: str = field(default="", init=False)
    """How far a search for a violation went, in words."""

    def add(self, left: Number, right: Number, case: Case, *, working: Working = ("", "")) -> float:
        """Try a case; return right − left relative to the larger side, negative if violated."""
        one, other = float(left), float(right)
        if math.isnan(one) or math.isnan(other):
            raise ValueError(f"a side is not a number: {case}")
        larger = max(abs(one), abs(other))
        if one == other:
            distance = 0.0
        elif math.isinf(larger):
            distance = math.copysign(1.0, other - one)
        else:
            distance = (other - one) / larger
        if distance < 0 and 0.0 in (one, other) and larger <= self.rounding:
            distance = 0.0  # 2e-16 and 0 differ by rounding, which nothing here is relative to
        if distance < self.closest[0]:
            self.closest = (distance, self._compare(one, other, distance))

        def describe() -> str:
            return self._compare(one, other, distance, working)

        self._record_case(distance < -self.rounding, case, describe)
        return distance

    def _compare(
        self, one: float, other: float, distance: float, working: Working = ("", "")
    ) -> str:
        """Write both sides in the statement's order, with the relation that they have."""
        sides = [format_entry(side, 6) for side in (one, other)]
        violated = distance < -self.rounding
        if not violated and (distance <= 0 or sides[0] == sides[1]):
            return f"both sides are {sides[1]}"
        if sides[0] == sides[1]:
            sides = [format_entry(side, 17) for side in (one, other)]
        sides = list(map(_write_side, working, sides))
        if self.larger_first:
            return f" {'<' if violated else '≥'} ".join(reversed(sides))
        return f" {'>' if violated else '≤'} ".join(sides)

    def check(self) -> Check:
        note = f"; {self.search_note}" if self.search_note else ""
        outcome = f"{self._count()}, closest: {self.closest[1]}"
        if self.violations:
            outcome = f"fails in {self.violations} of {self._count()}"
        return self._build_check(not self.violations, outcome + note)


@dataclass(eq=False)
class Expectation(_Trial):
    """A mean over samples equals its stated value, within `sigmas` standard errors, by entry.

    The largest of thousands of normals is near 4; one beyond six has a probability of 2e-9.
    The mean of a few samples is imprecise: the summary reports the standard error relative to the
    largest entry.
    """

    sigmas: float = 6.0
    worst: float = field(default=0.0, init=False)
    precision: float = field(default=0.0, init=False)

    def add(
        self,
        samples: Tensor,
        stated: Number,
        case: Case,
    ) -> float:
        """Try a case, samples along the first dimension; return its number of standard errors."""
        count = samples.shape[0]
        if count < 2:
            raise ValueError(f"a standard error needs at least two samples, got {count}: {case}")
        error, mean = samples.std(dim=0) / count**0.5, samples.mean(dim=0)
        target = torch.as_tensor(stated, dtype=samples.dtype).expand(samples.shape[1:])
        scale = max(_largest_magnitude(target), _largest_magnitude(mean), 1e-300)
        # An entry without spread is exact up to rounding.
        ratios = (mean - target).abs() / error.clamp(min=1e-12 * scale)
        worst = _largest_magnitude(ratios)
        self.worst = max(self.worst, worst)
        self.precision = max(self.precision, _largest_magnitude(error) / scale)

        def describe() -> str:
            at = int(ratios.argmax())
            value, spread, expected = (float(x.flatten()[at]) for x in (mean, error, target))
            return f"the mean is {value:.6g} ± {spread:.2g}, and {expected:.6g} is stated"

        self._record_case(worst > self.sigmas, case, describe)
        return worst

    def check(self) -> Check:
        failing = f", {self.violations} of them off" if self.violations else ""
        return self._build_check(
            not self.violations,
            f"{self.cases} expectations{failing}, largest difference {self.worst:.2g} standard "
            f"errors (allowed {self.sigmas:g}), standard error up to {self.precision:.1g} of the "
            "largest entry",
        )


def check_rows(trial: Equality | Inequality, rows: Iterable[tuple[Case, Number, Number]]) -> Check:
    """Try every case with its two sides, and return the outcome."""
    for case, left, right in rows:
        trial.add(left, right, case)
    return trial.check()


def as_erratum(where: str, printed: _Trial, corrected: _Trial, *, grade: Grade = "step") -> Erratum:
    """Make an erratum of the trials of a printed form and of its correction."""
    return Erratum(where=where, printed=printed.check(), corrected=corrected.check(), grade=grade)


def take_worst(one: Tensor, other: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Take the slices of two tensors, such as tokens, that differ most, so that both can be shown.

    Args:
        one: A tensor.
        other: A tensor of the same shape.
        dim: The dimension of the slices.
    """
    rest = [k for k in range(one.dim()) if k != dim]
    index = int((one - other).abs().amax(rest).argmax())
    return one.select(dim, index), other.select(dim, index)


def _write_side(working: str, value: str) -> str:
    return f"{working} = {value}" if working and working != value else value


def _as_tensor(value: Number) -> Tensor:
    """Convert to float64; torch's default for a number would round it to float32 first."""
    return torch.as_tensor(value, dtype=torch.float64)


def _largest_magnitude(values: Tensor) -> float:
    """Return the largest magnitude; a value that is not finite is an error of the check."""
    if not bool(torch.isfinite(values).all()):
        raise ValueError("expected finite values, got one that is not")
    return float(values.abs().max()) if values.numel() else 0.0
