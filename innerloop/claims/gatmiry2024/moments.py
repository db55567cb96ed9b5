"""Exact moments of a sample covariance, compared with bounds around its eigenvalues' powers.

δ has several definitions: (8Ld/√n)^{1/(2L)} in section 3.5, 4kd/√n in section 3.7, and in Lemma A.7
δ^k = 4kd/√n. Each is a reading of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.evidence import Part
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.wishart import Wishart

MOST_LOOPS, LARGEST_D = 4, 4
Width = Callable[[int, int, int, int], float]
"""Map L, k, d and n to the factor of λ_1^k."""


def section_width(L: int, k: int, d: int, n: int) -> float:
    """Width of section 3.5: δ^k with δ = (8Ld/√n)^{1/(2L)}."""
    return (8 * L * d / n**0.5) ** (k / (2 * L))


def bare_section_width(L: int, k: int, d: int, n: int) -> float:
    """Width of section 3.5 without a power: δ = (8Ld/√n)^{1/(2L)}."""
    return (8 * L * d / n**0.5) ** (1 / (2 * L))


def plain_width(L: int, k: int, d: int, n: int) -> float:
    """Width 4kd/√n: δ of section 3.7, δ^k of Lemma A.7."""
    return 4 * k * d / n**0.5


class Spectrum(NamedTuple):
    """Eigenvalues in descending order, n, L, and E[S^k] in their basis for k ≤ most ≤ 2L."""

    values: Tensor
    n: int
    loops: int
    powers: list[Tensor]

    @classmethod
    def from_values(cls, values: Tensor, n: int, loops: int, most: int) -> Spectrum:
        law = Wishart(torch.diag(values) / n, n)
        powers = [law.power(k).diagonal() for k in range(most + 1)]
        return cls(values, n, loops, powers)

    def shifted_eigenvalues(self, k: int) -> Tensor:
        """Eigenvalues of E[(I − S)^k]."""
        return sum(
            ((-1) ** j * comb(k, j) * self.powers[j] for j in range(k + 1)),
            torch.zeros_like(self.values),
        )


def draw_spectra(generator: torch.Generator, trials: int, least: str) -> Iterator[Spectrum]:
    """Draw spectra with n > d, or n ≥ 4k²d²; every fourth isotropic, the first ones by hand."""
    one = torch.ones(1, dtype=torch.float64)
    if least == "n > d":
        yield Spectrum.from_values(one, 2, 2, 4)
        yield Spectrum.from_values(100 * one, 2, 2, 4)
        yield Spectrum.from_values(100 * one, 2, 4, 8)
    for trial in range(trials):
        d, L = 1 + trial % LARGEST_D, draw_integer(generator, 1, MOST_LOOPS)
        values = 10 ** (2 * torch.rand(d, generator=generator, dtype=torch.float64) - 1.5)
        values = one.expand(d) if trial % 4 == 0 else values.sort(descending=True).values
        values = values * (1, 100)[draw_integer(generator, 0, 1)]
        most = 2 * L if least == "n > d" else draw_integer(generator, 1, 2 * L)
        start = d + 1 if least == "n > d" else 4 * most**2 * d**2
        yield Spectrum.from_values(
            values, start * (1, 1, 3, 20, 1000)[draw_integer(generator, 0, 4)], L, most
        )


class Bounds:
    """Trials of center − width·top ≤ value ≤ center + width·top, entry by entry."""

    def __init__(self, name: str, width: Width, scale: float, turned: bool) -> None:
        self.low = Inequality(f"{name}: the lower bound", rounding=1e-9)
        self.high = Inequality(f"{name}: the upper bound", rounding=1e-9)
        self.width, self.scale, self.turned = width, scale, turned

    def add(self, case: Spectrum, k: int, value: Tensor, center: Tensor, top: float) -> None:
        d, n, L = len(case.values), case.n, case.loops
        wide = self.scale * self.width(L, k, d, n) * top
        about = f"d = {d}, n = {n}, L = {L}, k = {k}"
        if bool((case.values == case.values[0]).all()):
            about += f", λ = {float(case.values[0]):g}"
        for j in range(d):
            left, size = center[j] - (-wide if self.turned else wide), (d, L, n, k)
            self.low.add(left, value[j], size=size, about=about)
            self.high.add(value[j], center[j] + wide, size=size, about=about)


def build_parts(first: Bounds, later: Bounds) -> list[Part]:
    """Parts for both ends; an end failing for n > d gets the n of Lemma A.2 as its correction."""
    found = []
    for one, other in ((first.low, later.low), (first.high, later.high)):
        check = one.check()
        found.append(Part(printed=check, corrected=None if check.passed else other.check()))
    return found


class NonCommuting(NamedTuple):
    """Dense positive definite Σ* and A that do not commute."""

    star: Tensor
    A: Tensor
    n: int

    @classmethod
    def draw(cls, generator: torch.Generator, k: int) -> NonCommuting:
        d = 1 + k % LARGEST_D
        half = draw_normal(generator, d, d + 1)
        return cls(draw_covariance(generator, d, 20.0), half @ half.mT / (d + 1), d + 1 + k % 7)

    def root(self) -> Tensor:
        values, U = torch.linalg.eigh(self.A)
        return U * values.sqrt() @ U.mT

    def inner(self) -> Tensor:
        """The matrix A^½Σ*A^½."""
        return self.root() @ self.star @ self.root()

    def shifted_moment(self, k: int) -> Tensor:
        """The moment E[(I − A^½ΣA^½)^k] from words in Σ* and A, without using a shared basis."""
        d = len(self.star)
        law, eye = Wishart(self.star / self.n, self.n), torch.eye(d, dtype=torch.float64)
        total = eye
        for j in range(1, k + 1):
            entries = torch.zeros_like(eye)
            for a in range(d):
                for b in range(d):
                    # tr(Σ A Σ … A Σ · A^½ e_b e_aᵀ A^½) is the entry a, b of (A^½ΣA^½)^j.
                    last = self.root()[:, b : b + 1] @ self.root()[a : a + 1]
                    entries[a, b] = law.trace([*[self.A] * (j - 1), last])
            total = total + (-1) ** j * comb(k, j) * entries
        return total


def add_shared_basis(
    trial: Equality, matrix: Tensor, basis: Tensor, about: str, size: tuple[int, int]
) -> None:
    """Add to the trial whether `matrix` is diagonal in the eigenvectors of `basis`."""
    U = torch.linalg.eigh(basis).eigenvectors
    turned = U.mT @ matrix @ U
    trial.add(turned, torch.diag(turned.diagonal()), size=size, about=about)
