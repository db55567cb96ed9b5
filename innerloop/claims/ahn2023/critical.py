"""The best point of a small family of weights, and the slope and curvature of the loss around it.

Behind Theorems 4 and 5: weights A_i = a_i Σ⁻¹ and B_i = b_i I, the numbers a and b found on the
exact loss; then the loss for all matrices A_i, B_i near that point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product

import torch
from torch import Tensor

from innerloop.claims.ahn2023.hard_instances import build_covariances, build_matrices
from innerloop.claims.ahn2023.rotations import Mean
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Erratum, Value
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality, as_erratum, check_rows
from innerloop.theory.layers import LayeredLoss, restricted_loss
from innerloop.theory.wishart import Wishart


@dataclass(frozen=True, eq=False)
class Point:
    """A member of the family of weights, for one law of prompts."""

    law: LayeredLoss
    scales: Tensor
    """The numbers a_i, then (one fewer) b_i where x moves."""

    @cached_property
    def bases(self) -> Tensor:
        """The matrices of which the A_i, then the B_i, are multiples."""
        S, layers = self.law.covariance, self.law.layers
        moves = len(self.scales) - layers
        return torch.stack(
            [torch.linalg.inv(S)] * layers + [torch.eye(len(S), dtype=S.dtype)] * moves
        )

    @cached_property
    def weights(self) -> Tensor:
        """All entries of the A_i, then of those B_i that affect the loss."""
        return (self.scales[:, None, None] * self.bases).flatten()

    def loss(self, weights: Tensor) -> Tensor:
        d, layers = len(self.law.covariance), self.law.layers
        matrices = weights.reshape(-1, d, d)
        return self.law.loss(matrices[:layers], matrices[layers:] if self.law.moving else None)

    def differentiate(self) -> Tensor:
        """The gradient of the loss, one matrix for each A_i and B_i."""
        at = self.weights.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.loss(at), at)
        return slope.reshape(-1, *self.law.covariance.shape)

    @property
    def case(self) -> Case:
        return Case(layers=self.law.layers, d=len(self.law.covariance), n=self.law.n)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Gradients in all weights, at the best points of the family and at others of it."""

    best: list[tuple[Case, Tensor]]
    near: list[tuple[Case, float, float]]
    """The loss of a best point, and a loss near it."""
    drawn: list[Gradient]
    rows: list[dict[str, Value]] = field(default_factory=list)
    evaluations: int = 0
    depths: list[dict[str, Value]] = field(default_factory=list)
    """Least losses by number of layers, for a figure."""
    explicit: list[tuple[Case, Tensor]] = field(default_factory=list)
    """Gradients at the points of Theorem 5 whose last A_i alone is not 0."""
    means: list[Mean] = field(default_factory=list)
    """Means over random rotations in the proof of Theorem 5."""


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient at a random point of the family, and a random direction R, then S."""

    case: Case
    covariance: Tensor
    layers: int
    slope: Tensor
    direction: Tensor

    def derive(self, direction: Tensor) -> Tensor:
        """The derivative of the loss along the given matrices, d/dt f at t = 0."""
        return (self.slope * direction).sum()

    def take_traces(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """tr(Σ^{1/2}R_iΣ^{1/2}) of those of A_i, tr(Σ^{−1/2}S_iΣ^{1/2}) of those of B_i."""
        inner, outer = self.covariance @ matrices[: self.layers], matrices[self.layers :]
        first, second = (m.diagonal(dim1=-2, dim2=-1).sum(-1) for m in (inner, outer))
        return first[:, None, None], second[:, None, None]

    @property
    def inverse(self) -> Tensor:
        return torch.linalg.inv(self.covariance)

    @property
    def identity(self) -> Tensor:
        return torch.eye(len(self.covariance), dtype=torch.float64)


def _list_starts(layers: int, moving: bool) -> Tensor:
    """Starts of the search: a_i = −2^i/2 alone; with B_i, a_i = −4^i/2 and each b_i 0.3 or 0.9."""
    a = [-0.5 * (4 if moving else 2) ** i for i in range(layers)]
    others = product((0.3, 0.9), repeat=layers - 1 if moving else 0)
    return torch.tensor([[*a, *b] for b in others], dtype=torch.float64)


def minimise_in_family(law: LayeredLoss) -> Point:
    """Minimise the exact loss inside the family: L-BFGS, then Newton's method to full precision."""
    d, n = len(law.covariance), law.n

    def within(scales: Tensor) -> Tensor:
        a, b = scales[: law.layers], scales[law.layers :]
        return restricted_loss(a, b if law.moving else None, d, n)

    scales, _, _ = search_minimum(within, _list_starts(law.layers, law.moving), iterations=300)
    for _ in range(8):
        slope = torch.as_tensor(torch.autograd.functional.jacobian(within, scales))
        curvature = torch.as_tensor(torch.autograd.functional.hessian(within, scales))
        scales = scales - torch.linalg.solve(curvature, slope)
    return Point(law, scales)


def build_explicit_point(law: LayeredLoss) -> Point:
    """Build the critical point of Theorem 5 with A_i = 0 but for the last, and all B_i alike."""
    d, n = len(law.covariance), law.n
    white = Wishart(torch.eye(d, dtype=torch.float64) / n, n)
    one, two, three = (white.power(k).trace() for k in (1, 2, 3))
    a = -one / two
    b = -(one + 2 * a * two + a**2 * three) / (2 * a * (two + a * three))
    scales = torch.zeros(2 * law.layers - 1, dtype=torch.float64)
    scales[law.layers - 1], scales[law.layers :] = a, b
    return Point(law, scales)


@cache
def least_family_loss(d: int, n: int, layers: int, moving: bool) -> tuple[Tensor, float]:
    """The scales a and b of A_i = a_i Σ⁻¹, B_i = b_i I with the least loss, and that loss over d.

    The lowest of the minima that L-BFGS finds; it is the same for every Σ.
    """

    def loss(t: Tensor) -> Tensor:
        return 1e3 * restricted_loss(t[:layers], t[layers:] if moving else None, d, n) / d

    scales, value, _ = search_minimum(loss, _list_starts(layers, moving), iterations=120)
    return scales, value / 1e3


def measure_slopes(
    generator: torch.Generator,
    cases: Sequence[Sequence[int]],
    trials: int,
    free: int,
    simple: Gradient,
) -> Slopes:
    """Measure at the best point of each size (d, n, layers), Σ dense, and at random points."""
    moving = len(simple.slope) > simple.layers
    found = Slopes([], [], [simple])
    evaluations = 0
    for d, n, layers in cases:
        law = LayeredLoss(draw_covariance(generator, d, 10.0), n, layers, moving)
        point = minimise_in_family(law)
        found.best.append((point.case, point.differentiate()))
        if moving:
            explicit = build_explicit_point(law)
            found.explicit.append((point.case, explicit.differentiate()))
        found.rows.append(_tabulate_point(generator, point, free))
        evaluations += _look_around(generator, point, found.near)
    for k in range(trials):
        d, layers = (1 + k % 2, 2 + (k % 8 == 5)) if moving else (1 + k % 3, 1 + k // 3 % 2)
        S = draw_covariance(generator, d, 10.0) * 4.0 ** draw_integer(generator, -1, 1)
        law = LayeredLoss(S, draw_integer(generator, 1, 8), layers, moving)
        count = 2 * layers - 1 if moving else layers
        scales = draw_normal(generator, count) / (4 if moving else 2)
        found.drawn.append(
            measure_gradient(Point(law, scales), draw_normal(generator, count, d, d))
        )
    for name, S in build_covariances(definite=True):
        law = LayeredLoss(S, 1, simple.layers, moving)
        at = measure_gradient(Point(law, -torch.ones(len(simple.slope)).double() / 2), S, name)
        inverse = at.inverse / at.inverse.norm()
        for M in build_matrices(len(S)).values():
            # Derivatives are linear in R and S: a multiple of Σ⁻¹ keeps them away from 0.
            along = inverse + M / M.norm().clamp(min=1.0)
            found.drawn.append(replace(at, direction=along.expand_as(at.slope)))
    return replace(found, evaluations=evaluations)


def measure_gradient(point: Point, direction: Tensor, note: str = "") -> Gradient:
    S, layers = point.law.covariance, point.law.layers
    return Gradient(point.case.extend(note=note), S, layers, point.differentiate(), direction)


def _look_around(generator: torch.Generator, point: Point, near: list) -> int:
    """Measure losses near a point, and at the end of a search from nearby; its evaluations."""
    at, size = float(point.loss(point.weights)), point.weights.shape
    for spread in (0.1, 0.01, 0.001):
        value = float(point.loss(point.weights + spread * draw_normal(generator, *size)))
        near.append((point.case.extend(note=f"weights {spread} away"), at, value))
    start = point.weights + 0.02 * draw_normal(generator, *size)
    _, value, evaluations = search_minimum(point.loss, start[None], iterations=30)
    near.append((point.case.extend(note="where a search from nearby ended"), at, value))
    return evaluations


def _tabulate_point(generator: torch.Generator, point: Point, free: int) -> dict[str, Value]:
    """Tabulate a best point, and the least loss that searches over all entries found."""
    values, law, d = point.case.values, point.law, len(point.law.covariance)
    told = [f"{value:.4f}" for value in point.scales.tolist()]
    row: dict[str, Value] = {**values, "a": ", ".join(told[: law.layers])}
    if law.moving:
        row["b"] = ", ".join(told[law.layers :])
    row["loss / d"] = float(point.loss(point.weights)) / d
    hessian = torch.as_tensor(torch.autograd.functional.hessian(point.loss, point.weights))
    spectrum = torch.linalg.eigvalsh(hessian)
    row["least curvature / largest"] = float(spectrum[0] / spectrum[-1])
    if free:
        starts = 0.4 * draw_normal(generator, free, len(point.weights))
        row["least of free searches / d"] = (
            search_minimum(point.loss, starts, iterations=400)[1] / d
        )
    return row


def check_gradient_vanishes(found: list[tuple[Case, Tensor]], statement: str) -> Check:
    rows = ((case, slope, torch.zeros_like(slope)) for case, slope in found)
    return check_rows(Equality(statement, tolerance=1e-8), rows)


def check_local_minima(data: Slopes, statement: str) -> Check:
    trial = Inequality(statement, rounding=1e-9)
    trial.search_note = (
        f"L-BFGS over all entries from {len(data.best)} starts, {data.evaluations} evaluations"
    )
    return check_rows(trial, data.near)


def check_direction(data: Slopes, where: str, name: str, block: int) -> Erratum:
    """Check that moving along the stated direction lowers f as much as moving along any R or S.

    Block 0: R̃_i = r_i I is printed, r_i Σ⁻¹ meant; block 1: S̃_i = s_i Σ⁻¹ printed, s_i I meant.
    """
    forms = (f"{name} $I$", f"{name} $Σ⁻¹$") if block == 0 else (f"{name} $Σ⁻¹$", f"{name} $I$")
    any_direction = "RS"[block]
    printed, corrected = (
        Inequality(f"$df/dt$ along {form} is at most that along {any_direction}", rounding=1e-7)
        for form in forms
    )
    for found in data.drawn:
        traces = found.take_traces(found.direction)[block] / len(found.covariance)
        bases = (found.identity, found.inverse)[:: 1 if block == 0 else -1]
        keep = slice(found.layers) if block == 0 else slice(found.layers, None)
        slope, given = found.slope[keep], found.direction[keep]
        for trial, base in zip((printed, corrected), bases, strict=True):
            for sign in (1, -1):
                left, right = ((slope * m).sum() for m in (traces * base, given))
                case = found.case if sign == 1 else found.case.extend(note=f"$−{any_direction}$")
                trial.add(sign * left, sign * right, case)
    return as_erratum(where, printed, corrected, grade="print")


def shift_best(data: Slopes) -> Slopes:
    return replace(data, best=[(case, slope + 1e-6) for case, slope in data.best])


def tilt_gradients(data: Slopes) -> Slopes:
    """Make gradients that are no multiples of Σ, or of I."""
    for found in data.drawn:
        found.slope[..., 0, -1] += 10 * found.slope.norm() * (len(found.covariance) > 1)
    return data


def tilt_means(data: Slopes) -> Slopes:
    """Make derivatives whose mean over rotations is not that at the mean."""
    for found in data.means:
        found.slopes[0].add_(1e-6)
    return data


FALSIFIED: dict[str, Callable[[Slopes], Slopes]] = {
    "a gradient of a millionth at the best points": shift_best,
    "gradients that are no multiples of Σ, or of I": tilt_gradients,
}
