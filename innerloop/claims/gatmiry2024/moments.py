"""Exact moments of a sample covariance, compared with bounds around its eigenvalues' powers.

The width of the bounds is 4kd/√n: Lemma A.5's proof ends with it, Lemma A.7 calls it δ^k, section
3.7 δ. In section 3.5 δ = (8Ld/√n)^{1/(2L)}, whose k-th power is 4kd/√n at k = 2L: this is another
reading. Bounds are tested for n > d, and for n ≥ k²d, where they are proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Part
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.wishart import Wishart

MOST_LOOPS, LARGEST_D = 4, 4
Rows = list[dict[str, Any]]
"""A case, and either a moment's eigenvalue `moment`, the `center` of its bounds and the `top` that
their width is relative to, or a `matrix` and the `basis` that it should be diagonal in."""


def plain_width(case: Case) -> float:
    """Return the width 4kd/√n: δ of section 3.7, δ^k of Lemma A.7."""
    return 4 * case["k"] * case["d"] / case["n"] ** 0.5


def section_width(case: Case) -> float:
    """Return the width δ^k with δ = (8Ld/√n)^{1/(2L)}, as in section 3.5."""
    k, L = case["k"], case["L"]
    return (8 * L * case["d"] / case["n"] ** 0.5) ** (k / (2 * L))


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

    def compare(self, k: int, *, shifted: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return eigenvalues of E[S^k] or E[(I − S)^k], those of no noise, and the bounds' unit."""
        if not shifted:
            return self.powers[k], self.values**k, self.values[0] ** k
        terms = [(-1) ** j * comb(k, j) * self.powers[j] for j in range(k + 1)]
        moment = torch.stack(terms).sum(0)
        return moment, (1 - self.values) ** k, (1 + self.values[0]) ** k

    def list_rows(self, *, shifted: bool) -> Rows:
        d, rows = len(self.values), []
        for k in range(1, len(self.powers)):
            moment, center, top = self.compare(k, shifted=shifted)
            for j in range(d):
                case = Case(d=d, L=self.loops, n=self.n, k=k, λ=self.values, j=j + 1)
                row = {"moment": float(moment[j]), "center": float(center[j]), "top": float(top)}
                rows.append({"case": case, **row})
        return rows


def draw_spectra(generator: torch.Generator, trials: int) -> Iterator[Spectrum]:
    """Draw spectra: some by hand, the source's hard matrices, isotropic ones, over two decades."""
    one = torch.ones(1, dtype=torch.float64)
    yield from (Spectrum.from_values(value * one, 2, 2, 4) for value in (1, 7, 100))
    yield Spectrum.from_values(torch.tensor([1.0, 0.5], dtype=torch.float64), 3, 1, 2)
    yield Spectrum.from_values(torch.tensor([1.0, 0.5], dtype=torch.float64), 256, 1, 2)  # δ = 1
    for build in HARD_MATRICES.values():
        yield Spectrum.from_values(torch.linalg.svdvals(build(2)) ** 2, 32, 2, 4)
    for trial in range(trials):
        d, L = 1 + trial % LARGEST_D, draw_integer(generator, 1, MOST_LOOPS)
        values = 10 ** (2 * torch.rand(d, generator=generator, dtype=torch.float64) - 1.5)
        values = one.expand(d) if trial % 4 == 0 else values.sort(descending=True).values
        values = values * (1, 100)[draw_integer(generator, 0, 1)]
        k = draw_integer(generator, 2, 2 * L)
        least = (d + 1) if trial % 3 == 0 else max(d + 1, k * k * d)
        n = least * (1, 1, 3, 20, 1000)[draw_integer(generator, 0, 4)]
        yield Spectrum.from_values(values, n, L, 2 * L)


def measure_spectra(
    generator: torch.Generator, trials: int, searched: list[list[int]], *, shifted: bool
) -> Rows:
    """Measure where a search ended, and on spectra by hand and at random."""
    rows = search_spectra(searched, shifted=shifted)
    for spectrum in draw_spectra(generator, trials):
        rows += spectrum.list_rows(shifted=shifted)
    return rows


def search_spectra(sizes: list[list[int]], *, shifted: bool) -> Rows:
    """Search the eigenvalues that come nearest to the bounds, at the least n they are proved for.

    Sizes are pairs (d, L), k = 2L.
    """
    rows: Rows = []
    for d, L in sizes:
        k, n = 2 * L, max(d + 1, 4 * L * L * d)

        def build(point: Tensor, n: int = n, L: int = L) -> Spectrum:
            return Spectrum.from_values(point.exp().sort(descending=True).values, n, L, 2 * L)

        def margin(point: Tensor, k: int = k) -> Tensor:
            moment, center, top = build(point).compare(k, shifted=shifted)
            return (top / (moment - center).abs().clamp(min=1e-300)).log().min()

        starts = torch.stack([torch.linspace(1, end, d, dtype=torch.float64) for end in (1, -2)])
        point, _, count = search_minimum(margin, starts, iterations=30)
        note = f"searched over the eigenvalues by L-BFGS, {count} evaluations"
        rows += [{**row, "search": note} for row in build(point).list_rows(shifted=shifted)]
    return rows


def judge_bounds(rows: Rows, statement: str) -> Part:
    """Judge |moment − center| ≤ width · top; the statement has {width} where the width stands."""
    printed = Inequality(statement.format(width="(4kd/√n)") + ", $n > d$", rounding=1e-9)
    proved = Inequality(statement.format(width="(4kd/√n)") + ", $n ≥ k²d$", rounding=1e-9)
    other = Inequality(statement.format(width="δ^k") + ", $n > d$", rounding=1e-9)
    small = Inequality(statement.format(width="δ^k") + ", $n ≥ 64L²d²$", rounding=1e-9)
    for row in (row for row in rows if "moment" in row):
        case, far = row["case"], abs(row["moment"] - row["center"])
        left = f"|{row['moment']:.6g} − {row['center']:.6g}|"
        for trial, width in ((printed, plain_width(case)), (other, section_width(case))):
            working = (left, f"{width:.6g} · {row['top']:.6g}")
            trial.add(far, width * row["top"], case, working=working)
        if case["n"] >= (8 * case["L"] * case["d"]) ** 2:
            small.add(far, section_width(case) * row["top"], case)
        if case["n"] >= case["k"] ** 2 * case["d"]:
            proved.add(far, plain_width(case) * row["top"], case)
            proved.search_note = row.get("search", proved.search_note)
    return Part(
        printed=printed.check(),
        corrected=proved.check(),
        reading=(
            "$δ^k$ is $4kd/√n$: Lemma A.7 defines it so, and the proof of Lemma A.5 ends with it"
        ),
        other_readings={
            "$δ = (8Ld/√n)^{1/(2L)}$, as section 3.5 has it": other.check(),
            "that $δ$, and $δ ≤ 1$, which Theorem 3.2's condition implies": small.check(),
        },
    )


def judge_basis(rows: Rows, statement: str) -> Check:
    """Judge whether every matrix is diagonal in the eigenvectors of its basis."""
    trial = Equality(statement, tolerance=1e-8)
    for row in (row for row in rows if "matrix" in row):
        U = torch.linalg.eigh(row["basis"]).eigenvectors
        turned = U.mT @ row["matrix"] @ U
        trial.add(turned, torch.diag(turned.diagonal()), row["case"])
    return trial.check()


def move_eigenvalues(widths: float) -> Callable[[Rows], Rows]:
    """Make data whose eigenvalues are this many widths of the bounds above their center."""

    def change(rows: Rows) -> Rows:
        for row in (row for row in rows if "moment" in row):
            row["moment"] = row["center"] + widths * plain_width(row["case"]) * row["top"]
        return rows

    return change


def tilt_matrices(rows: Rows) -> Rows:
    """Make data whose matrices have other eigenvectors: a thousandth added to every entry."""
    for row in (row for row in rows if "matrix" in row):
        row["matrix"] = row["matrix"] + 1e-3 * row["matrix"].abs().max()
    return rows


FALSIFIED = {
    "eigenvalues 1.1 widths above": move_eigenvalues(1.1),
    "eigenvalues 1.1 widths below": move_eigenvalues(-1.1),
    "matrices with other eigenvectors": tilt_matrices,
}


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
