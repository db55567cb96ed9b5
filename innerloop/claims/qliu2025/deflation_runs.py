"""Runs of Algorithm 1 for Theorem 7: errors of its vectors, and angles after τ iterations.

Spectra are the hard ones of the source, random ones, and steps downhill from the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.prompts import draw_integer
from innerloop.claims.qliu2025 import deflation
from innerloop.claims.qliu2025.hard_instances import HARD_SPECTRA

EPSILONS, DELTA, ROUNDING = (0.1, 0.01, 1e-4), 0.1, 1e-9


class Angle(NamedTuple):
    """pᵀv₁ after the printed number of iterations, or after the corrected one."""

    cosine: float
    epsilon: float
    corrected: bool
    case: Case


class Run(NamedTuple):
    """A run of Algorithm 1 for k components, with its errors up to sign."""

    values: list[float]
    """The eigenvalues, with a 0 after the last."""
    k: int
    a: list[float]
    b: list[float]
    own: list[float]
    epsilon: float | None
    """ε₀ where the number of iterations is the printed one."""
    case: Case

    @property
    def gap(self) -> float:
        """Δ with λ_{k+1}."""
        return min(x - y for x, y in pairwise(self.values[: self.k + 1]))

    def list_bounds(self) -> list[tuple[str, float, float]]:
        """List the errors with their corrected bounds."""
        values, gap, o = self.values, self.gap, max(self.own)
        bounds = [o] + [
            8 * o * values[0] / gap * math.prod(8 * values[i] / gap for i in range(1, eta))
            for eta in range(1, self.k)
        ]
        rows = [
            ("single", max(a - ROUNDING, 0.0), most) for a, most in zip(self.a, bounds, strict=True)
        ]
        return [*rows, ("joint", max(math.hypot(*self.a) - ROUNDING, 0.0), math.hypot(*bounds))]

    @property
    def room(self) -> float:
        """The least ratio of a bound to its error."""
        return min(most / max(error, 1e-12) for _, error, most in self.list_bounds())


def as_tensor(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def measure_angles(generator: torch.Generator, trials: int) -> list[Angle]:
    """Measure pᵀv₁ for roots m + 1 and m of λ₁ and λ₂, for hard spectra and for random ones."""
    start, found = as_tensor((DELTA, math.sqrt(1 - DELTA**2))), []
    for m in range(1, 11):
        spectrum = as_tensor(((m + 1) ** 2, m**2))
        note = f"$XXᵀ = diag(λ₁, λ₂)$, $p = ({DELTA}, √{1 - DELTA**2:.2f})$"
        found += _measure_angle(spectrum.diag(), torch.eye(2).double(), spectrum, start, 0.5, note)
    spectra = [build(d) for build in HARD_SPECTRA.values() for d in (1, 2, 3)]
    for _ in range(trials):
        roots = 100 ** torch.rand(draw_integer(generator, 2, 5), generator=generator).double()
        roots = roots.sort(descending=True).values
        roots[0] = roots[1] + 1
        spectra.append(roots**2)
    for spectrum in spectra:
        A, vectors = deflation.draw_matrix(generator, spectrum)
        first = deflation.draw_start(generator, vectors[:, 0], DELTA)
        for epsilon in EPSILONS[:2]:
            found += _measure_angle(A, vectors, spectrum, first, epsilon)
    return found


def _measure_angle(
    A: Tensor, vectors: Tensor, spectrum: Tensor, first: Tensor, epsilon: float, note: str = ""
) -> list[Angle]:
    larger, smaller = [*spectrum.tolist(), 0.0][:2]
    taus = {True: deflation.proper_tau(epsilon, DELTA, larger, smaller)}
    if math.sqrt(larger) >= math.sqrt(smaller) + 1:
        taus[False] = deflation.printed_tau(epsilon, DELTA)
    found = []
    for corrected, tau in taus.items():
        a = deflation.run_deflation(A, vectors, spectrum, [first], [tau]).a[0]
        case = Case(d=len(spectrum), λ1=larger, λ2=smaller, δ=DELTA, ε0=epsilon, τ=tau, note=note)
        found.append(Angle(1 - a**2 / 2, epsilon, corrected, case))
    return found


def measure_runs(
    generator: torch.Generator, trials: int, hard: list[tuple[Tensor, int]]
) -> list[Run]:
    """Measure errors of Algorithm 1: by hand, on hard spectra and on random ones."""
    runs, spectra = _list_runs_by_hand(), list(hard)
    spectra += [draw_spectrum(generator, trial) for trial in range(trials)]
    for spectrum, k in spectra:
        for epsilon in EPSILONS:
            printed = [deflation.printed_tau(epsilon, DELTA)] * k
            runs.append(draw_run(generator, spectrum, printed, epsilon))
        runs.append(draw_run(generator, spectrum, draw_taus(generator, k)))
    return [*runs, *descend(generator, min(runs, key=lambda run: run.room), 20 + trials)]


def list_hard_spectra() -> list[tuple[Tensor, int]]:
    """List hard spectra with every k ≤ 4 whose gaps, that to λ_{k+1} among them, are positive."""
    found = []
    for build in HARD_SPECTRA.values():
        for d in (1, 2, 3, 5):
            falls = [x > y for x, y in pairwise([*build(d).tolist(), 0.0])]
            found += [(build(d), k) for k in range(1, min(d, 4) + 1) if all(falls[:k])]
    return found


def _list_runs_by_hand() -> list[Run]:
    """List runs on diagonal matrices that can be checked by hand.

    Two have two iterations for each vector, the printed number for ε₀ = δ = 1/2. One has none.
    """
    found, even = [], as_tensor((1, 1, 0)) / math.sqrt(2)
    for values, second, words in (
        ((4, 1), as_tensor((0, 1)), "p₁ = (1, 1)/√2$, $p₂ = (0, 1)"),
        ((2, 1, 0), even, "p₁ = p₂ = (1, 1, 0)/√2"),
    ):
        spectrum, note = as_tensor(values), f"$XXᵀ = diag(λ)$, ${words}$"
        vectors, starts = torch.eye(len(values)).double(), [even[: len(values)], second]
        taus = [deflation.printed_tau(0.5, 0.5)] * 2
        found.append(measure_run(spectrum.diag(), vectors, spectrum, starts, taus, 0.5, note))
    return [_measure_first_vector(), *found]


def _measure_first_vector() -> Run:
    """Measure the first vector (1, √3)/2 for diag(13, 8): a₁ = 1, λ̂₁ = 19/2 and b₁ = 7/2."""
    spectrum = as_tensor((13, 8))
    vector = as_tensor((1, math.sqrt(3))) / 2
    run = measure_run(spectrum.diag(), torch.eye(2).double(), spectrum, [vector], [0], None)
    note = "$XXᵀ = diag(13, 8)$, $p₁ = (1, √3)/2$, $ε₀ = 1/2$, so that $a₁ = 1$ and $λ̂₁ = 19/2$"
    return run._replace(case=Case(d=2, k=1, note=note))


def draw_run(
    generator: torch.Generator, spectrum: Tensor, taus: list[int], epsilon: float | None = None
) -> Run:
    """Run Algorithm 1 on a random matrix of this spectrum, from starts with p_iᵀv_i = δ."""
    A, vectors = deflation.draw_matrix(generator, spectrum)
    starts = [deflation.draw_start(generator, vectors[:, i], DELTA) for i in range(len(taus))]
    return measure_run(A, vectors, spectrum, starts, taus, epsilon)


def measure_run(
    A: Tensor,
    vectors: Tensor,
    spectrum: Tensor,
    starts: list[Tensor],
    taus: list[int],
    epsilon: float | None,
    note: str = "",
) -> Run:
    found, k = deflation.run_deflation(A, vectors, spectrum, starts, taus), len(taus)
    # Only d and k are numbers that order it: runs by hand come first among equals.
    case = Case(d=len(spectrum), k=k, λ=spectrum, τ=torch.tensor(taus), note=note)
    if epsilon is not None:
        case = case.extend(ε0=as_tensor([epsilon])[0])
    return Run([*spectrum.tolist(), 0.0], k, *found, epsilon, case)


def draw_taus(generator: torch.Generator, k: int) -> list[int]:
    return [draw_integer(generator, 1, 30) for _ in range(k)]


def descend(generator: torch.Generator, best: Run, steps: int) -> list[Run]:
    """Look for a violation of the corrected bounds near the worst run: perturbed spectra and τ."""
    runs = []
    for _ in range(steps):
        spectrum = as_tensor(best.values[:-1])
        factors = torch.randn(len(spectrum), generator=generator, dtype=torch.float64)
        moved = (spectrum * (0.2 * factors).exp()).sort(descending=True).values
        runs.append(draw_run(generator, moved, draw_taus(generator, best.k)))
        best = min(runs[-1], best, key=lambda run: run.room)
    return runs


def draw_spectrum(generator: torch.Generator, trial: int) -> tuple[Tensor, int]:
    """Draw a spectrum; every second has λ_{k+1} near λ_k."""
    k = draw_integer(generator, 1, 3)
    ratios = 0.2 + 0.6 * torch.rand(k + 2, generator=generator, dtype=torch.float64)
    spectrum = 5 * torch.cumprod(ratios, 0)
    if trial % 2:
        spectrum[k] = (1 - 0.005) * spectrum[k - 1]
        spectrum[k + 1] = 0.5 * spectrum[k]
    return spectrum, k
