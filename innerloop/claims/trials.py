"""How a statement is put to the test: many cases, the worst of them, the smallest that breaks it.

    trial = Equality("w₊ = w + A ∇R(w)", tolerance=1e-10)
    trial.add(left, right, Case(d=d, n=n, layer=k))
    Part(printed=trial.check())

The smallest case that breaks the statement is the one that is shown. Equalities are held to
rounding, inequalities to their margin, expectations to standard errors; `intervals` has what is
decided by an interval, `searching` how violations are looked for.
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
FEW_ENTRIES = 9
"""Sides of up to this many entries are shown in a counterexample; of larger ones the distance."""


@dataclass(eq=False)
class _Trial:
    """Counts cases, and keeps the smallest that breaks the statement."""

    statement: str
    cases: int = field(default=0, init=False)
    violations: int = field(default=0, init=False)
    smallest: tuple[tuple[float, ...], str] | None = field(default=None, init=False)

    def _record_case(self, breaks: bool, case: Case, describe: Callable[[], str]) -> None:
        self.cases += 1
        self.violations += breaks
        if breaks and (self.smallest is None or case.size < self.smallest[0]):
            self.smallest = (case.size, f"{case}: {describe()}")

    def _count(self) -> str:
        return "1 case" if self.cases == 1 else f"{self.cases} cases"

    def check(self) -> Check:
        """The outcome of all cases."""
        raise NotImplementedError

    def _build_check(self, passed: bool | None, summary: str) -> Check:
        if not self.cases:
            raise ValueError(f"nothing was tried: {self.statement}")
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

    def add(
        self,
        left: Number,
        right: Number,
        case: Case,
    ) -> float:
        """Try a case; its deviation."""
        one, other = _as_tensor(left), _as_tensor(right)
        if one.shape != other.shape:
            raise ValueError(f"{tuple(one.shape)} cannot equal {tuple(other.shape)}: {case}")
        scale = max(1.0, _largest_magnitude(other))
        deviation = _largest_magnitude(one - other) / scale
        self.worst = max(self.worst, deviation)

        def describe() -> str:
            few = max(one.numel(), other.numel()) <= FEW_ENTRIES
            sides = f"{format_entry(one)} against {format_entry(other)}"
            return sides if few else f"off by {deviation:.3g}"

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
    """Check that what a build `told` is what was `wanted`, in every row of data that has both."""
    trial = Equality(statement, tolerance=tolerance)
    for row in rows:
        if "told" in row:
            trial.add(row["told"], row["wanted"], row["case"])
    return trial.check()


@dataclass(eq=False)
class Inequality(_Trial):
    """left ≤ right in every case. The margin is (right − left) / max(|left|, |right|)."""

    rounding: float = 1e-12
    larger_first: bool = False
    """Whether the statement is written as right ≥ left: counterexamples show that order."""
    least_margin: float = field(default=math.inf, init=False)
    search_note: str = field(default="", init=False)
    """How far a search for a violation went, in words."""

    def add(
        self,
        left: Number,
        right: Number,
        case: Case,
    ) -> float:
        """Try a case; its margin, negative where it is violated."""
        one, other = float(left), float(right)
        if math.isnan(one) or math.isnan(other):
            raise ValueError(f"a side is not a number: {case}")
        larger = max(abs(one), abs(other))
        margin = 0.0 if one == other else (other - one) / larger
        if margin < 0 and 0.0 in (one, other) and larger <= self.rounding:
            margin = 0.0  # nothing to be relative to: 2e-16 against 0 is rounding
        self.least_margin = min(self.least_margin, margin)

        def describe() -> str:
            sides = (other, one) if self.larger_first else (one, other)
            return " against ".join(format_entry(side, 6) for side in sides)

        self._record_case(margin < -self.rounding, case, describe)
        return margin

    def check(self) -> Check:
        failing = f", violated in {self.violations}" if self.violations else ""
        looked = f"; {self.search_note}" if self.search_note else ""
        return self._build_check(
            not self.violations,
            f"{self._count()}{failing}, least margin {self.least_margin:.3g} of the larger{looked}",
        )


@dataclass(eq=False)
class Expectation(_Trial):
    """A mean over samples equals what is stated, within `sigmas` standard errors, entry by entry.

    Of thousands of normals the largest is near 4: beyond six is a chance of 2e-9 for each.
    A mean of a few samples says little: the summary tells the standard error beside the size.
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
        """Try a case, samples along the first dimension; how many standard errors it is off."""
        count = samples.shape[0]
        if count < 2:
            raise ValueError("a standard error needs two samples")
        error = samples.std(dim=0) / count**0.5
        target = torch.as_tensor(stated, dtype=samples.dtype).expand(samples.shape[1:])
        off = (samples.mean(dim=0) - target).abs()
        scale = max(_largest_magnitude(target), _largest_magnitude(samples.mean(dim=0)), 1e-300)
        # An entry without spread is known exactly; only rounding may part it from what is stated.
        ratios = off / error.clamp(min=1e-12 * scale)
        found = _largest_magnitude(ratios)
        self.worst = max(self.worst, found)
        self.precision = max(self.precision, _largest_magnitude(error) / scale)
        self._record_case(found > self.sigmas, case, lambda: f"off by {found:.3g} standard errors")
        return found

    def check(self) -> Check:
        failing = f", {self.violations} of them off" if self.violations else ""
        return self._build_check(
            not self.violations,
            f"{self.cases} expectations{failing}, largest difference {self.worst:.2g} standard "
            f"errors (allowed {self.sigmas:g}), standard error up to {self.precision:.1g} of the "
            "largest entry",
        )


def check_rows(trial: Equality | Inequality, rows: Iterable[tuple[Case, Number, Number]]) -> Check:
    """Try every case with its two sides."""
    for case, left, right in rows:
        trial.add(left, right, case)
    return trial.check()


def as_erratum(where: str, printed: _Trial, corrected: _Trial, *, grade: Grade = "step") -> Erratum:
    """Make an erratum of the trials of a printed form and of its correction."""
    return Erratum(where=where, printed=printed.check(), corrected=corrected.check(), grade=grade)


def _as_tensor(value: Number) -> Tensor:
    """Convert to float64; torch's default for a number would round it to float32 first."""
    return torch.as_tensor(value, dtype=torch.float64)


def _largest_magnitude(values: Tensor) -> float:
    """The largest magnitude; a value that is not a number breaks the check, not the statement."""
    if not bool(torch.isfinite(values).all()):
        raise ValueError("a value is not finite")
    return float(values.abs().max()) if values.numel() else 0.0
